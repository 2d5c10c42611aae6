//! Seed-OSS: biases on q, k and v, and on the output only where the config says so.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "seed_oss",
    architectures: &["SeedOssForCausalLM"],
    notes: "Seed-OSS 36B: biases on q, k and v",
    record: Record {
        qkv_bias: BiasKey::unless("attention_bias"),
        o_bias: BiasKey::config("attention_out_bias"),
        defaults: Defaults { context: 524_288, head_dim: Some(128), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
