//! Granite 3.x, dense: Llama with four multipliers.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "granite",
    architectures: &["GraniteForCausalLM"],
    notes: "Granite 3.0 to 3.3, dense: embedding, attention, residual and logit multipliers",
    record: Record { defaults: DEFAULTS, ..Record::LLAMA },
    check: accept,
    exl2_caution: None,
};

/// Scores are not scaled by the head size.
pub(super) const DEFAULTS: Defaults =
    Defaults { attention_multiplier: Some(1.0), ..Defaults::LLAMA };
