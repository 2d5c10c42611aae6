//! InternLM 2 and 2.5: queries, keys and values in one tensor, ordered by key/value head.

use super::rename::INTERNLM2;
use super::{FamilyInfo, accept};
use crate::record::{BiasKey, FusedLayout, FusedQkv, LayerNorms, MlpRecord, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "internlm2",
    architectures: &["InternLM2ForCausalLM"],
    notes: "InternLM 2 and 2.5: interleaved fused projection",
    record: Record {
        layer_norms: LayerNorms {
            pre_attn: Some(&[".attention_norm"]),
            pre_mlp: Some(&[".ffn_norm"]),
            ..LayerNorms::LLAMA
        },
        fused_qkv: Some(FusedQkv { name: ".self_attn.wqkv", layout: FusedLayout::KvHeads }),
        qkv_bias: BiasKey::unless("bias"),
        o_bias: BiasKey::unless("bias"),
        mlp: MlpRecord {
            gate: Some(".feed_forward.w1"),
            up: ".feed_forward.w3",
            down: ".feed_forward.w2",
            ..MlpRecord::LLAMA
        },
        renames: INTERNLM2,
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
