//! Index: Llama whose head has rows of length one (`norm_head`).

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "index",
    architectures: &["IndexForCausalLM"],
    notes: "Index 1.9B: normalised head",
    record: Record { defaults: Defaults { context: 4096, ..Defaults::LLAMA }, ..Record::LLAMA },
    check: accept,
    exl2_caution: None,
};
