//! Index: Llama whose head has rows of length one (`norm_head`).

use super::{FamilyInfo, accept};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "index",
    architectures: &["IndexForCausalLM"],
    notes: "Index 1.9B: normalised head",
    record: Record::LLAMA,
    check: accept,
    exl2_caution: None,
};
