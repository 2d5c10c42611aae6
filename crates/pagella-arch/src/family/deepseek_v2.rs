//! DeepSeek V2 and V2-Lite: latent attention, softmax router, shared experts, dense first layers.

use super::{FamilyInfo, glm4_moe};
use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::feature::unsupported;
use crate::latent::LatentSizes;
use crate::record::{ExpertLayers, ExpertRecord, Record, Renormalize, SharedInner, SharedRecord};
use crate::spec::{ExpertGroups, GroupRank, RopeStyle, RouterScore};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "deepseek_v2",
    architectures: &["DeepseekV2ForCausalLM"],
    notes: "DeepSeek V2, V2-Lite, V2.5: latent attention, groups of experts, shared experts",
    record: Record {
        latent: Some(LatentSizes::DEEPSEEK),
        rope_style: RopeStyle::GptJ,
        experts: Some(ExpertRecord {
            experts: 64,
            experts_per_token: 6,
            inner: Some(1407),
            score: RouterScore::Softmax,
            selection_bias: None,
            groups: Some(ExpertGroups { count: 1, taken: 1, rank: GroupRank::Best }),
            renormalize: Renormalize::Never,
            shared: Some(SharedRecord {
                inner: SharedInner::Times("n_shared_experts", 2),
                ..glm4_moe::SHARED
            }),
            layers: ExpertLayers::From(0),
            ..glm4_moe::EXPERTS
        }),
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

fn check(config: &Config) -> Result<(), ArchError> {
    expect_value(config, FAMILY.name, "scoring_func", &["softmax"])?;
    expect_value(config, FAMILY.name, "topk_method", &["greedy", "group_limited_greedy"])?;
    // DeepSeek's own code then leaves the scaling out, other code does both.
    if config.flag(&["norm_topk_prob"])? == Some(true) {
        return Err(unsupported(config, FAMILY.name, "`norm_topk_prob`: true".to_owned()));
    }
    every_layer_has_experts(config, FAMILY.name)
}

/// Refuses any other value of a key.
pub(super) fn expect_value(
    config: &Config,
    family: &'static str,
    key: &'static str,
    known: &[&str],
) -> Result<(), ArchError> {
    match config.text(&[key])? {
        Some(value) if !known.contains(&value) => {
            let feature = format!("`{key}`: {}", excerpt(&value.into()));
            Err(unsupported(config, family, feature))
        }
        _ => Ok(()),
    }
}

/// Refuses experts in every so many layers: no known model has that.
pub(super) fn every_layer_has_experts(
    config: &Config,
    family: &'static str,
) -> Result<(), ArchError> {
    match config.find(&["moe_layer_freq"]) {
        Some((key, value)) if value.as_u64() != Some(1) => {
            Err(unsupported(config, family, format!("`{key}`: {}", excerpt(value))))
        }
        _ => Ok(()),
    }
}
