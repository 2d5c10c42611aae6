//! Qwen 3, dense: RMS norm of query and key heads, head size independent of the hidden size.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, QkNormRecord, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3",
    architectures: &["Qwen3ForCausalLM"],
    notes: "Qwen 3, dense text models",
    record: Record {
        qk_norm: Some(QkNormRecord::RMS),
        window: WindowRule::FromLayer,
        defaults: Defaults {
            context: 32_768,
            head_dim: Some(128),
            window: Some(4096),
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: EXL2_CAUTION,
};

/// ExLlamaV2 measured these models with a layer norm where the model has an RMS norm.
pub(super) const EXL2_CAUTION: Option<&str> =
    Some("with a layer norm on query and key heads instead of the RMS norm");
