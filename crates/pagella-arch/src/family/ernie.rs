//! ERNIE 4.5, dense: Llama with paired rotation.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, MlpRecord, Record};
use crate::spec::RopeStyle;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "ernie",
    architectures: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
    notes: "ERNIE 4.5 0.3B: paired rotation",
    record: RECORD,
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    qkv_bias: BiasKey::by_presence("use_bias"),
    o_bias: BiasKey::by_presence("use_bias"),
    mlp: MlpRecord { bias: BiasKey::by_presence("use_bias"), ..MlpRecord::LLAMA },
    rope_style: RopeStyle::GptJ,
    defaults: Defaults {
        context: 131_072,
        head_dim: Some(128),
        tied: true,
        rope_theta: 500_000.0,
        ..Defaults::LLAMA
    },
    ..Record::LLAMA
};
