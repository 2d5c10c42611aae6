//! EXAONE 4: norms after both halves only, normed heads; where there are windows, the rest does not rotate.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, LayerNorms, QkNormRecord, Record, RopeLayers, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "exaone4",
    architectures: &["Exaone4ForCausalLM"],
    notes: "EXAONE 4 (1.2B, 32B): post-norms only, hybrid attention",
    record: Record {
        layer_norms: LayerNorms::POST,
        qk_norm: Some(QkNormRecord::RMS),
        window: WindowRule::Alternating(4),
        rope_layers: RopeLayers::SlidingIfAny,
        defaults: Defaults { window: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
