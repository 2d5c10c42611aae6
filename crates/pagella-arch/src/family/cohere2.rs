//! Command R7B and A: Cohere with windows; layers without one do not rotate.

use super::{FamilyInfo, accept, cohere};
use crate::record::{Defaults, Record, RopeLayers, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "cohere2",
    architectures: &["Cohere2ForCausalLM"],
    notes: "Command R7B, Command A: three local layers to a global one without rotation",
    record: Record {
        window: WindowRule::Alternating(4),
        rope_layers: RopeLayers::Sliding,
        defaults: Defaults { window: Some(4096), rope_theta: 10_000.0, ..cohere::RECORD.defaults },
        ..cohere::RECORD
    },
    check: accept,
    exl2_caution: Some("with rotated queries and keys in its global layers"),
};
