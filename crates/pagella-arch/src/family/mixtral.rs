//! Mixtral: Mistral with eight experts per layer, of which a token takes two.

use super::{FamilyInfo, accept, no_caution};
use crate::record::{Defaults, ExpertRecord, Record, Renormalize, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "mixtral",
    architectures: &["MixtralForCausalLM"],
    notes: "Mixtral 8x7B and 8x22B: softmax over all experts, the weights of the best sum to one",
    record: Record {
        experts: Some(ExpertRecord {
            router: ".block_sparse_moe.gate",
            parts: [
                ".block_sparse_moe.experts.{e}.w1",
                ".block_sparse_moe.experts.{e}.w3",
                ".block_sparse_moe.experts.{e}.w2",
            ],
            experts: 8,
            experts_per_token: 2,
            inner: None,
            renormalize: Renormalize::Always,
            dense_layers: false,
        }),
        window: WindowRule::Every,
        defaults: Defaults { context: 131_072, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    caution: no_caution,
};
