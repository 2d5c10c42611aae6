//! Gemmoe: Gemma with the experts of Mixtral. One tanh GELU everywhere.

use super::{FamilyInfo, accept, gemma};
use crate::record::{ExpertRecord, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemmoe",
    architectures: &["GemmoeForCausalLM"],
    notes: "Gemmoe, a mixture made of Gemma",
    record: Record { experts: Some(ExpertRecord::MIXTRAL), ..gemma::RECORD },
    check: accept,
    exl2_caution: None,
};
