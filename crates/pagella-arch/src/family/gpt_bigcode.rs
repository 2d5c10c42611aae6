//! StarCoder 1 and SantaCoder: GPT-2 with one key/value head.

use super::rename::GPT_BIGCODE;
use super::{FamilyInfo, gpt2};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gpt_bigcode",
    architectures: &["GPTBigCodeForCausalLM"],
    notes: "StarCoder 1, SantaCoder, Granite 20B Code: learned positions, one key/value head",
    record: Record { one_kv_head: true, transposed: false, renames: GPT_BIGCODE, ..gpt2::RECORD },
    check: gpt2::check,
    exl2_caution: None,
};
