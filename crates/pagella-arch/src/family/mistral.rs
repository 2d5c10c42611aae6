//! Mistral: Llama with an optional sliding window on every layer.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "mistral",
    architectures: &["MistralForCausalLM", "MinistralForCausalLM"],
    notes: "Mistral 7B (v0.1 with its 4096-token window), Nemo, Small, Large, Ministral, Zephyr",
    record: Record {
        window: WindowRule::Every,
        defaults: Defaults { context: 131_072, window: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
