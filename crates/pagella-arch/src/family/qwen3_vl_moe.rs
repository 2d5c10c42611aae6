//! The text side of Qwen 3-VL with experts, which lie in one tensor; images not yet.

use super::{FamilyInfo, accept, qwen3_vl};
use crate::record::{Defaults, ExpertLayers, ExpertRecord, Record, StackedExperts};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3_vl_moe",
    architectures: &["Qwen3VLMoeForConditionalGeneration"],
    notes: "Qwen 3-VL mixtures of experts (30B-A3B, 235B-A22B), images not yet",
    record: Record {
        experts: Some(ExpertRecord {
            stacked: Some(StackedExperts::GateUpTransposed {
                gate_up: ".mlp.experts.gate_up_proj",
                down: ".mlp.experts.down_proj",
                alternate: false,
            }),
            experts: 60,
            experts_per_token: 4,
            inner: Some(1408),
            layers: ExpertLayers::StepAndList,
            ..ExpertRecord::QWEN
        }),
        defaults: Defaults { head_dim: None, ..qwen3_vl::RECORD.defaults },
        ..qwen3_vl::RECORD
    },
    check: accept,
    exl2_caution: None,
};
