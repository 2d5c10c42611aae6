//! Orion: Llama with layer norms.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record};
use crate::spec::NormKind;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "orion",
    architectures: &["OrionForCausalLM"],
    notes: "Orion 14B: layer norms with biases",
    record: Record {
        norm_kind: NormKind::Layer,
        defaults: Defaults { context: 4096, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
