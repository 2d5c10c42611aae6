//! Qwen 1.5, 2 and 2.5: biases on q, k and v; a window on the upper layers if asked for.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen2",
    architectures: &["Qwen2ForCausalLM"],
    notes: "Qwen 1.5, 2, 2.5, QwQ, Qwen distills of DeepSeek R1; dense text models",
    record: RECORD,
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    qkv_bias: BiasKey::ALWAYS,
    o_bias: BiasKey::NEVER,
    window: WindowRule::FromLayer,
    defaults: Defaults { context: 32_768, window: Some(4096), ..Defaults::LLAMA },
    ..Record::LLAMA
};
