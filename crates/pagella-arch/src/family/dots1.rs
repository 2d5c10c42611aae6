//! dots.llm1: normed heads, sigmoid router with a bias for the selection, shared experts.

use super::{FamilyInfo, accept, glm4_moe};
use crate::record::{ExpertLayers, ExpertRecord, QkNormRecord, Record, Renormalize, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "dots1",
    architectures: &["Dots1ForCausalLM"],
    notes: "dots.llm1: sigmoid router, shared experts, dense first layers",
    record: Record {
        qk_norm: Some(QkNormRecord::RMS),
        experts: Some(ExpertRecord {
            layers: ExpertLayers::From(0),
            renormalize: Renormalize::Config(false),
            ..glm4_moe::EXPERTS
        }),
        window: WindowRule::Never,
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
