//! Ministral 3: Mistral with YaRN, and queries that grow beyond the original length.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, GrowthRule, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "ministral3",
    architectures: &["Ministral3ForCausalLM"],
    notes: "Ministral 3 (3B, 8B, 14B), text models: queries grow beyond the original length",
    record: Record {
        query_growth: GrowthRule::Scaled,
        window: WindowRule::Every,
        defaults: Defaults {
            context: 262_144,
            head_dim: Some(128),
            rope_theta: 1e6,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
