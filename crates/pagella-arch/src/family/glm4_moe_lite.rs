//! GLM-4.7-Flash: DeepSeek V3 in small, whose dense layers may be listed.

use super::{FamilyInfo, deepseek_v3, glm4_moe};
use crate::latent::LatentSizes;
use crate::record::{Defaults, ExpertRecord, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "glm4_moe_lite",
    architectures: &["Glm4MoeLiteForCausalLM"],
    notes: "GLM-4.7-Flash: latent attention, sigmoid router, shared expert",
    record: Record {
        latent: Some(LatentSizes {
            nope_dim: 192,
            value_dim: 256,
            query_rank: Some(768),
            ..LatentSizes::DEEPSEEK
        }),
        experts: Some(ExpertRecord {
            experts: 64,
            experts_per_token: 4,
            inner: Some(1536),
            weight_scale: Some(1.8),
            ..glm4_moe::EXPERTS
        }),
        defaults: Defaults { context: 202_752, ..Defaults::LLAMA },
        ..deepseek_v3::RECORD
    },
    check: deepseek_v3::check,
    exl2_caution: None,
};
