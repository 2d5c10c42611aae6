//! GLM-4.5 and 4.6: sigmoid router with a bias for the selection, a shared expert, dense first layers.

use super::{FamilyInfo, accept};
use crate::record::{
    BiasKey, Defaults, ExpertLayers, ExpertRecord, QkNormRecord, Record, Renormalize, SharedInner,
    SharedRecord,
};
use crate::spec::{ExpertGroups, GroupRank, RouterScore};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "glm4_moe",
    architectures: &["Glm4MoeForCausalLM"],
    notes: "GLM-4.5, 4.5-Air, 4.6: sigmoid router, shared expert, dense first layers",
    record: Record {
        qk_norm: Some(QkNormRecord { default_on: false, ..QkNormRecord::RMS }),
        o_bias: BiasKey::NEVER,
        experts: Some(EXPERTS),
        defaults: Defaults { context: 131_072, partial_rotary: 0.5, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};

/// Experts as DeepSeek V3 has them.
pub(super) const EXPERTS: ExpertRecord = ExpertRecord {
    experts: 128,
    experts_per_token: 8,
    inner: Some(1408),
    score: RouterScore::Sigmoid,
    selection_bias: Some(".mlp.gate.e_score_correction_bias"),
    groups: Some(ExpertGroups { count: 1, taken: 1, rank: GroupRank::TwoBest }),
    renormalize: Renormalize::Config(true),
    weight_scale: Some(1.0),
    shared: Some(SHARED),
    layers: ExpertLayers::From(1),
    ..ExpertRecord::QWEN
};

/// The shared expert of DeepSeek.
pub(super) const SHARED: SharedRecord = SharedRecord {
    parts: [
        ".mlp.shared_experts.gate_proj",
        ".mlp.shared_experts.up_proj",
        ".mlp.shared_experts.down_proj",
    ],
    fused_gate_up: None,
    weight: None,
    inner: SharedInner::Times("n_shared_experts", 1),
};
