//! GLM-4 of 2024 in the form of transformers.

use super::{FamilyInfo, accept, glm4};
use crate::record::Record;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "glm",
    architectures: &["GlmForCausalLM"],
    notes: "GLM-4 9B of 2024, GLM-Edge: half a head rotates",
    record: Record { ..glm4::RECORD },
    check: accept,
    exl2_caution: None,
};
