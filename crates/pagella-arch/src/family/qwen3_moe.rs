//! Qwen 3 with experts: many narrow ones, weights summing to one only where the config says so.

use super::{FamilyInfo, accept, qwen3};
use crate::record::{Defaults, ExpertRecord, Record, Renormalize, WindowRule};
use crate::spec::NormKind;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3_moe",
    architectures: &["Qwen3MoeForCausalLM"],
    notes: "Qwen 3 mixtures of experts (30B-A3B, 235B-A22B, Coder); some layers may be dense",
    record: Record {
        qk_norm: Some(NormKind::Rms),
        experts: Some(ExpertRecord {
            router: ".mlp.gate",
            parts: [
                ".mlp.experts.{e}.gate_proj",
                ".mlp.experts.{e}.up_proj",
                ".mlp.experts.{e}.down_proj",
            ],
            experts: 128,
            experts_per_token: 8,
            inner: Some(768),
            renormalize: Renormalize::Config,
            dense_layers: true,
        }),
        window: WindowRule::EveryIfUsed,
        defaults: Defaults { context: 32_768, window: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    caution: qwen3::caution,
};
