//! Arcee Foundation Models: Llama with a squared ReLU in place of the gate.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, MlpRecord, Record};
use crate::spec::Activation;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "arcee",
    architectures: &["ArceeForCausalLM"],
    notes: "AFM-4.5B: squared ReLU without a gate",
    record: Record {
        mlp: MlpRecord { gate: None, ..MlpRecord::LLAMA },
        activation: ("hidden_act", Activation::Relu2),
        defaults: Defaults { context: 4096, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
