//! ERNIE 4.5 with experts: softmax router with a bias for the selection, shared experts, dense layers.

use super::{FamilyInfo, accept, ernie};
use crate::record::{
    BiasKey, Defaults, ExpertLayers, ExpertRecord, Record, SharedInner, SharedRecord,
};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "ernie_moe",
    architectures: &["Ernie4_5_MoeForCausalLM"],
    notes: "ERNIE 4.5 21B-A3B and 300B-A47B: selection bias, shared experts",
    record: Record {
        experts: Some(ExpertRecord {
            bias: BiasKey::by_presence("use_bias"),
            experts: 64,
            experts_per_token: 6,
            inner: Some(1536),
            selection_bias: Some(".mlp.moe_statics.e_score_correction_bias"),
            shared: Some(SharedRecord {
                parts: [
                    ".mlp.shared_experts.gate_proj",
                    ".mlp.shared_experts.up_proj",
                    ".mlp.shared_experts.down_proj",
                ],
                fused_gate_up: None,
                weight: None,
                inner: SharedInner::Times("moe_num_shared_experts", 2),
            }),
            layers: ExpertLayers::Interval,
            ..ExpertRecord::QWEN
        }),
        defaults: Defaults { head_dim: None, ..ernie::RECORD.defaults },
        ..ernie::RECORD
    },
    check: accept,
    exl2_caution: None,
};
