//! GPT-2: learned positions, layer norms, linears stored `[in, out]`.

use super::FamilyInfo;
use super::rename::GPT2;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{
    BiasKey, Defaults, FusedLayout, FusedQkv, LayerNorms, MlpRecord, Record, RopeLayers,
};
use crate::spec::{Activation, NormKind};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gpt2",
    architectures: &["GPT2LMHeadModel"],
    notes: "GPT-2 (all sizes) and its fine-tunes: learned positions",
    record: RECORD,
    check,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    layer_norms: LayerNorms {
        pre_attn: Some(&[".ln_1"]),
        pre_mlp: Some(&[".ln_2"]),
        ..LayerNorms::LLAMA
    },
    norm_kind: NormKind::Layer,
    norm_eps: &["layer_norm_epsilon"],
    fused_qkv: Some(FusedQkv { name: ".self_attn.c_attn", layout: FusedLayout::Parts }),
    qkv_bias: BiasKey::ALWAYS,
    o_bias: BiasKey::ALWAYS,
    mlp: MlpRecord { inner_times_hidden: Some(4), ..MlpRecord::PLAIN },
    activation: ("activation_function", Activation::GeluTanh),
    rope_layers: RopeLayers::None,
    positions: Some("model.wpe"),
    transposed: true,
    renames: GPT2,
    defaults: Defaults { context: 1024, tied: true, norm_eps: Some(1e-5), ..Defaults::LLAMA },
    ..Record::LLAMA
};

/// Scores are scaled by the head size and by nothing else.
pub(super) fn check(config: &Config) -> Result<(), ArchError> {
    for (key, usual) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("add_cross_attention", false),
        ("multi_query", true),
    ] {
        match config.flag(&[key])? {
            Some(stated) if stated != usual => {
                return Err(unsupported(config, FAMILY.name, format!("`{key}`: {stated}")));
            }
            _ => {}
        }
    }
    Ok(())
}
