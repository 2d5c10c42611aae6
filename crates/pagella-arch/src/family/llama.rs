//! Llama 1 to 3.x and everything that copied it; the record all other families start from.

use super::{FamilyInfo, accept, no_caution};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "llama",
    // The second spelling is that of the first conversions of Llama 1.
    architectures: &["LlamaForCausalLM", "LLaMAForCausalLM"],
    notes: "Llama 1, 2, 3, 3.1, 3.2 (text), 3.3, TinyLlama, SmolLM, Yi 1.5, DeepSeek R1 distills",
    record: Record::LLAMA,
    check: accept,
    caution: no_caution,
};
