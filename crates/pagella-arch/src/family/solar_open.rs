//! Solar Open: GLM-4.5 without dense layers, whole heads rotate.

use super::{FamilyInfo, accept, glm4_moe};
use crate::record::{BiasKey, Defaults, ExpertLayers, ExpertRecord, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "solar_open",
    architectures: &["SolarOpenForCausalLM"],
    notes: "Solar Open 100B: sigmoid router, shared expert",
    record: Record {
        o_bias: BiasKey::NEVER,
        experts: Some(ExpertRecord {
            inner: Some(1280),
            layers: ExpertLayers::All,
            ..glm4_moe::EXPERTS
        }),
        defaults: Defaults {
            context: 131_072,
            head_dim: Some(128),
            rope_theta: 1e6,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
