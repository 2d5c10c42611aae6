//! OLMo 2: norms after both halves only, queries and keys normed over all heads together.

use super::{FamilyInfo, accept};
use crate::record::{LayerNorms, QkNormRecord, Record};
use crate::spec::QkNormSpan;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "olmo2",
    architectures: &["Olmo2ForCausalLM"],
    notes: "OLMo 2 (1B to 32B): post-norms only, wide norm of queries and keys",
    record: RECORD,
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    layer_norms: LayerNorms::POST,
    qk_norm: Some(QkNormRecord { span: QkNormSpan::Token, ..QkNormRecord::RMS }),
    ..Record::LLAMA
};
