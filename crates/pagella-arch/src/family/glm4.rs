//! GLM-4 of 2024 and of 0414: paired rotation of half a head; the latter also norms after both halves.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, LayerNorms, MlpRecord, Record};
use crate::spec::RopeStyle;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "glm4",
    architectures: &["Glm4ForCausalLM"],
    notes: "GLM-4-0414, GLM-Z1 (9B, 32B): post-norms, half a head rotates",
    record: Record {
        layer_norms: LayerNorms {
            post_attn: Some(&[".post_self_attn_layernorm"]),
            post_mlp: Some(&[".post_mlp_layernorm"]),
            ..LayerNorms::LLAMA
        },
        ..RECORD
    },
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    qkv_bias: BiasKey::by_presence("attention_bias"),
    o_bias: BiasKey::NEVER,
    mlp: MlpRecord { fused_gate_up: Some(".mlp.gate_up_proj"), ..MlpRecord::LLAMA },
    rope_style: RopeStyle::GptJ,
    defaults: Defaults { context: 131_072, partial_rotary: 0.5, ..Defaults::LLAMA },
    ..Record::LLAMA
};
