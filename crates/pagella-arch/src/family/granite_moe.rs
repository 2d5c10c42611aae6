//! Granite 3.x with experts: Mixtral-like routing over stacked experts, Granite multipliers.

use super::rename::GRANITE_MOE;
use super::{FamilyInfo, accept, granite};
use crate::record::{ExpertRecord, Record, SharedInner, SharedRecord, StackedExperts};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "granite_moe",
    architectures: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    notes: "Granite 3.0 and 3.1 mixtures of experts (1B-A400M, 3B-A800M)",
    record: Record {
        experts: Some(EXPERTS),
        renames: GRANITE_MOE,
        defaults: granite::DEFAULTS,
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};

pub(super) const EXPERTS: ExpertRecord = ExpertRecord {
    router: ".block_sparse_moe.router",
    parts: [
        ".block_sparse_moe.experts.{e}.gate_proj",
        ".block_sparse_moe.experts.{e}.up_proj",
        ".block_sparse_moe.experts.{e}.down_proj",
    ],
    stacked: Some(StackedExperts::GateUp {
        gate_up: ".block_sparse_moe.input_linear",
        down: ".block_sparse_moe.output_linear",
    }),
    shared: Some(SHARED),
    ..ExpertRecord::QWEN
};

pub(super) const SHARED: SharedRecord = SharedRecord {
    parts: [".shared_mlp.gate_proj", ".shared_mlp.up_proj", ".shared_mlp.output_linear"],
    fused_gate_up: Some(".shared_mlp.input_linear"),
    weight: None,
    inner: SharedInner::Key("shared_intermediate_size", 0),
};
