//! Mixtral: Mistral with eight experts per layer, of which a token takes two.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, ExpertRecord, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "mixtral",
    architectures: &["MixtralForCausalLM"],
    notes: "Mixtral 8x7B and 8x22B: softmax over all experts, the weights of the best sum to one",
    record: Record {
        experts: Some(ExpertRecord::MIXTRAL),
        window: WindowRule::Every,
        defaults: Defaults { context: 131_072, rope_theta: 1e6, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
