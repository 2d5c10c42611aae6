//! OLMoE: queries and keys normed over all heads together, many small experts.

use super::FamilyInfo;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{Defaults, ExpertRecord, QkNormRecord, Record, Renormalize};
use crate::spec::QkNormSpan;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "olmoe",
    architectures: &["OlmoeForCausalLM"],
    notes: "OLMoE 1B-7B: wide norm of queries and keys, 64 experts",
    record: Record {
        qk_norm: Some(QkNormRecord { span: QkNormSpan::Token, ..QkNormRecord::RMS }),
        experts: Some(ExpertRecord {
            experts: 64,
            experts_per_token: 8,
            renormalize: Renormalize::Config(false),
            ..ExpertRecord::QWEN
        }),
        defaults: Defaults { context: 4096, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// It would clamp after the norm, not before.
fn check(config: &Config) -> Result<(), ArchError> {
    match config.find(&["clip_qkv"]) {
        Some((key, value)) => Err(unsupported(config, FAMILY.name, format!("`{key}`: {value}"))),
        None => Ok(()),
    }
}
