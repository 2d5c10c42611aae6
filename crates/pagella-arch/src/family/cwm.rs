//! Code World Model: Llama with three local layers after each global one.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "cwm",
    architectures: &["CwmForCausalLM"],
    notes: "Code World Model 32B: windows in three layers of four",
    record: Record {
        qkv_bias: BiasKey::NEVER,
        o_bias: BiasKey::NEVER,
        window: WindowRule::AllButFirstOf(4),
        defaults: Defaults {
            context: 131_072,
            head_dim: Some(128),
            window: Some(8192),
            rope_theta: 1e6,
            rope_scaling: r#"{"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
