//! Llama 1 to 3.x and everything that copied it; the record all other families start from.

use super::{FamilyInfo, accept};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "llama",
    architectures: &["LlamaForCausalLM", "LLaMAForCausalLM", "IQuestCoderForCausalLM"],
    notes: "Llama 1, 2, 3, 3.1, 3.2 (text), 3.3, TinyLlama, SmolLM, Yi 1.5, DeepSeek R1 distills",
    record: Record::LLAMA,
    check: accept,
    exl2_caution: None,
};
