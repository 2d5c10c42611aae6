//! Gemma 3, text only or the text side of the vision model: five local layers to a global one.

use super::rename::LANGUAGE_MODEL;
use super::{FamilyInfo, gemma};
use crate::record::{Defaults, LayerNorms, LocalRope, QkNormRecord, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma3",
    architectures: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    notes: "Gemma 3 (270M to 27B), images not yet: a local rotary table, normed heads",
    record: Record {
        layer_norms: LayerNorms::GEMMA,
        qk_norm: Some(QkNormRecord::RMS),
        window: WindowRule::Alternating(6),
        local_rope: LocalRope::Theta(10_000.0),
        renames: LANGUAGE_MODEL,
        defaults: Defaults {
            // Small ones state no maximum.
            context: 131_072,
            vocab: Some(262_208),
            heads: Some(8),
            kv_heads: Some(4),
            window: Some(4096),
            query_scalar: Some(256.0),
            rope_theta: 1e6,
            ..gemma::RECORD.defaults
        },
        ..gemma::RECORD
    },
    check: gemma::check,
    exl2_caution: Some(
        "with images that are read causally, and with norm weights rounded to 16 bits",
    ),
};
