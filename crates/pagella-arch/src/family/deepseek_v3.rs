//! DeepSeek V3 and models of its shape, such as Kimi K2: latent attention, a sigmoid router with a
//! bias for the selection, shared experts, dense first layers. Layers for the prediction of further
//! tokens, which lie behind the last one in the files, are left alone.

use super::deepseek_v2::{every_layer_has_experts, expect_value};
use super::{FamilyInfo, glm4_moe};
use crate::config::Config;
use crate::error::ArchError;
use crate::latent::LatentSizes;
use crate::record::{Defaults, ExpertLayers, ExpertRecord, Record};
use crate::spec::{ExpertGroups, GroupRank, RopeStyle};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "deepseek_v3",
    architectures: &["DeepseekV3ForCausalLM"],
    notes: "DeepSeek V3, V3.1, R1, Kimi K2, Moonlight: latent attention, sigmoid router",
    record: RECORD,
    check,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    latent: Some(LatentSizes::DEEPSEEK),
    rope_style: RopeStyle::GptJ,
    experts: Some(ExpertRecord {
        experts: 256,
        inner: Some(2048),
        groups: Some(ExpertGroups { count: 8, taken: 4, rank: GroupRank::TwoBest }),
        weight_scale: Some(2.5),
        layers: ExpertLayers::From(3),
        ..glm4_moe::EXPERTS
    }),
    defaults: Defaults { context: 4096, ..Defaults::LLAMA },
    ..Record::LLAMA
};

pub(super) fn check(config: &Config) -> Result<(), ArchError> {
    expect_value(config, FAMILY.name, "scoring_func", &["sigmoid"])?;
    expect_value(config, FAMILY.name, "topk_method", &["noaux_tc"])?;
    every_layer_has_experts(config, FAMILY.name)
}
