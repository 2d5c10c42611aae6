//! Gemma 2: norms before and after both halves, soft-caps, every other layer local.
//!
//! The residual stream is to be kept in f32: post-norm weights are large enough to leave the range
//! of f16 otherwise.

use super::{FamilyInfo, no_caution};
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{Defaults, LayerNorms, Record, WindowRule};
use crate::spec::Activation;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma2",
    architectures: &["Gemma2ForCausalLM"],
    notes: "Gemma 2 (2B, 9B, 27B): alternating 4096-token window, soft-caps, post-norms",
    record: Record {
        layer_norms: LayerNorms {
            pre_attn: ".input_layernorm",
            post_attn: Some(".post_attention_layernorm"),
            pre_mlp: ".pre_feedforward_layernorm",
            post_mlp: Some(".post_feedforward_layernorm"),
        },
        norm_offset: 1.0,
        activation: ("hidden_activation", Activation::GeluTanh),
        window: WindowRule::Alternating,
        sqrt_hidden: true,
        requires_bos: true,
        defaults: Defaults {
            context: 8192,
            head_dim: Some(256),
            tied: true,
            window: Some(4096),
            attn_softcap: Some(50.0),
            final_softcap: Some(30.0),
            query_scalar: Some(256.0),
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check,
    caution: no_caution,
};

fn check(config: &Config) -> Result<(), ArchError> {
    match config.flag(&["use_bidirectional_attention"])? {
        Some(true) => {
            let feature = "`use_bidirectional_attention`: true".to_owned();
            Err(unsupported(config, FAMILY.name, feature))
        }
        _ => Ok(()),
    }
}
