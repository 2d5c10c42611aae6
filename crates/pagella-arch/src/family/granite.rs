//! Granite 3.x, dense: Llama with four multipliers.

use super::{FamilyInfo, accept};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "granite",
    architectures: &["GraniteForCausalLM"],
    notes: "Granite 3.0 to 3.3, dense: embedding, attention, residual and logit multipliers",
    record: Record::LLAMA,
    check: accept,
    exl2_caution: None,
};
