//! Qwen 3 with experts: many narrow ones, weights summing to one only where the config says so.

use super::{FamilyInfo, accept, qwen3};
use crate::record::{
    Defaults, ExpertLayers, ExpertRecord, QkNormRecord, Record, Renormalize, WindowRule,
};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3_moe",
    architectures: &["Qwen3MoeForCausalLM"],
    notes: "Qwen 3 mixtures of experts (30B-A3B, 235B-A22B, Coder); some layers may be dense",
    record: Record {
        qk_norm: Some(QkNormRecord::RMS),
        experts: Some(ExpertRecord {
            experts: 128,
            experts_per_token: 8,
            inner: Some(768),
            renormalize: Renormalize::Config(false),
            layers: ExpertLayers::StepAndList,
            ..ExpertRecord::QWEN
        }),
        window: WindowRule::EveryIfUsed,
        defaults: Defaults { context: 32_768, window: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: qwen3::EXL2_CAUTION,
};
