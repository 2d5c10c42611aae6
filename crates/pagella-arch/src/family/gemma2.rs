//! Gemma 2: norms before and after both halves, soft-caps, every other layer local.
//!
//! The residual stream is to be kept in f32: post-norm weights are large enough to leave the range
//! of f16 otherwise.

use super::{FamilyInfo, gemma};
use crate::record::{Defaults, LayerNorms, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma2",
    architectures: &["Gemma2ForCausalLM"],
    notes: "Gemma 2 (2B, 9B, 27B): alternating 4096-token window, soft-caps, post-norms",
    record: Record {
        layer_norms: LayerNorms::GEMMA,
        window: WindowRule::Alternating(1),
        defaults: Defaults {
            window: Some(4096),
            attn_softcap: Some(50.0),
            final_softcap: Some(30.0),
            query_scalar: Some(256.0),
            norm_eps: None,
            ..gemma::RECORD.defaults
        },
        ..gemma::RECORD
    },
    check: gemma::check,
    exl2_caution: None,
};
