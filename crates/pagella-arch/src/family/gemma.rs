//! Gemma 1: norm weights stored less one, embeddings times √hidden, GELU.

use super::FamilyInfo;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{Defaults, Record};
use crate::spec::Activation;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma",
    architectures: &["GemmaForCausalLM"],
    notes: "Gemma 1 and 1.1, CodeGemma: norm weights stored less one, scaled embeddings",
    record: RECORD,
    check,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    norm_offset: 1.0,
    // `hidden_act` of the first configs said "gelu" and meant the tanh form.
    activation: ("hidden_activation", Activation::GeluTanh),
    sqrt_hidden: true,
    requires_bos: true,
    defaults: Defaults {
        context: 8192,
        head_dim: Some(256),
        tied: true,
        norm_eps: Some(1e-6),
        ..Defaults::LLAMA
    },
    ..Record::LLAMA
};

/// Refuses what only encoders have.
pub(super) fn check(config: &Config) -> Result<(), ArchError> {
    match config.flag(&["use_bidirectional_attention"])? {
        Some(true) => {
            let feature = "`use_bidirectional_attention`: true".to_owned();
            Err(unsupported(config, FAMILY.name, feature))
        }
        _ => Ok(()),
    }
}
