//! The text side of Qwen 2-VL and 2.5-VL; images not yet. Three equal positions are one.

use super::rename::LANGUAGE_MODEL;
use super::{FamilyInfo, accept, qwen2};
use crate::record::{Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen2_vl",
    architectures: &["Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"],
    notes: "Qwen 2-VL and 2.5-VL, images not yet: the text model is Qwen 2",
    record: Record {
        renames: LANGUAGE_MODEL,
        defaults: Defaults { rope_theta: 1e6, ..qwen2::RECORD.defaults },
        ..qwen2::RECORD
    },
    check: accept,
    exl2_caution: Some("with rotary frequencies rounded to 16 bits"),
};
