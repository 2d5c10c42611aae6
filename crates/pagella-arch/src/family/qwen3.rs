//! Qwen 3, dense: RMS norm of query and key heads, head size independent of the hidden size.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record, WindowRule};
use crate::spec::{NormKind, QuantFacts};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3",
    architectures: &["Qwen3ForCausalLM"],
    notes: "Qwen 3, dense text models",
    record: Record {
        qk_norm: Some(NormKind::Rms),
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
    caution,
};

/// ExLlamaV2 measured these models with a layer norm where the model has an RMS norm (A3).
pub(super) fn caution(quant: &QuantFacts) -> Option<&'static str> {
    (quant.method.as_deref() == Some("exl2")).then_some(
        "EXL2 files of Qwen3 were calibrated by ExLlamaV2 with a layer norm on query and key \
         heads; this engine uses the RMS norm the model was trained with, so output differs from \
         ExLlamaV2 (A3)",
    )
}
