//! SmolLM 3: every fourth layer does not rotate.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record, RopeLayers, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "smollm3",
    architectures: &["SmolLM3ForCausalLM"],
    notes: "SmolLM 3: every fourth layer without rotation",
    record: Record {
        rope_layers: RopeLayers::Listed,
        window: WindowRule::UnrotatedIfUsed,
        defaults: Defaults { context: 32_768, tied: true, rope_theta: 2e6, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
