//! Qwen 1.5 and 2 with experts: weights that do not sum to one, and a shared expert that is weighed.

use super::{FamilyInfo, accept};
use crate::record::{
    BiasKey, Defaults, ExpertLayers, ExpertRecord, Record, Renormalize, SharedInner, SharedRecord,
    WindowRule,
};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen2_moe",
    architectures: &["Qwen2MoeForCausalLM"],
    notes: "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B: a weighed shared expert",
    record: Record {
        qkv_bias: BiasKey::unless("qkv_bias"),
        o_bias: BiasKey::NEVER,
        experts: Some(ExpertRecord {
            experts: 60,
            experts_per_token: 4,
            inner: Some(1408),
            renormalize: Renormalize::Config(false),
            shared: Some(SharedRecord {
                parts: [
                    ".mlp.shared_expert.gate_proj",
                    ".mlp.shared_expert.up_proj",
                    ".mlp.shared_expert.down_proj",
                ],
                fused_gate_up: None,
                weight: Some(".mlp.shared_expert_gate"),
                inner: SharedInner::Key("shared_expert_intermediate_size", 5632),
            }),
            layers: ExpertLayers::StepAndList,
            ..ExpertRecord::QWEN
        }),
        window: WindowRule::EvenBelowIfUsed,
        defaults: Defaults { context: 32_768, window: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
