//! OLMo 3: OLMo 2 with three local layers to a global one; local ones rotate without scaling.

use super::{FamilyInfo, accept, olmo2};
use crate::record::{Defaults, LocalRope, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "olmo3",
    architectures: &["Olmo3ForCausalLM"],
    notes: "OLMo 3 (7B, 32B): windows, post-norms only",
    record: Record {
        window: WindowRule::Alternating(4),
        local_rope: LocalRope::Unscaled,
        defaults: Defaults { window: Some(4096), rope_theta: 500_000.0, ..Defaults::LLAMA },
        ..olmo2::RECORD
    },
    check: accept,
    exl2_caution: None,
};
