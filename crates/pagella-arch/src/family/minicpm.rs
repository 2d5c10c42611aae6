//! MiniCPM 1 and 2: Llama with multipliers on embeddings, branches and logits.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "minicpm",
    architectures: &["MiniCPMForCausalLM"],
    notes: "MiniCPM 1B, 2B and their kin: scaled embeddings, branches and logits",
    record: Record {
        logit_base_dim: true,
        defaults: Defaults { context: 4096, tied: true, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
