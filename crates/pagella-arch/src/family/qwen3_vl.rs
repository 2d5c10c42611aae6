//! The text side of Qwen 3-VL, dense; images not yet. Three equal positions are one, however they are
//! interleaved, and only images add features to layers.

use super::rename::LANGUAGE_MODEL;
use super::{FamilyInfo, accept};
use crate::record::{Defaults, QkNormRecord, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3_vl",
    architectures: &["Qwen3VLForConditionalGeneration"],
    notes: "Qwen 3-VL (2B to 32B), images not yet: the text model is Qwen 3",
    record: RECORD,
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    qk_norm: Some(QkNormRecord::RMS),
    renames: LANGUAGE_MODEL,
    defaults: Defaults {
        context: 128_000,
        head_dim: Some(128),
        rope_theta: 500_000.0,
        ..Defaults::LLAMA
    },
    ..Record::LLAMA
};
