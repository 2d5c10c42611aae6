//! Hunyuan V1 with experts and a shared one.

use super::{FamilyInfo, hunyuan};
use crate::record::{ExpertRecord, Record, SharedInner, SharedRecord};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "hunyuan_moe",
    architectures: &["HunYuanMoEV1ForCausalLM"],
    notes: "Hunyuan-A13B: experts beside a shared MLP",
    record: Record {
        experts: Some(ExpertRecord {
            router: ".mlp.gate.wg",
            experts: 1,
            experts_per_token: 1,
            shared: Some(SharedRecord {
                parts: [
                    ".mlp.shared_mlp.gate_proj",
                    ".mlp.shared_mlp.up_proj",
                    ".mlp.shared_mlp.down_proj",
                ],
                fused_gate_up: None,
                weight: None,
                inner: SharedInner::Intermediate,
            }),
            ..ExpertRecord::QWEN
        }),
        ..hunyuan::RECORD
    },
    check: hunyuan::check,
    exl2_caution: None,
};
