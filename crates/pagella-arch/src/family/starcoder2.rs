//! StarCoder 2: layer norms, biases everywhere, an MLP without a gate, optional window.

use super::{FamilyInfo, accept};
use crate::record::{BiasKey, Defaults, MlpRecord, Record, WindowRule};
use crate::spec::{Activation, NormKind};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "starcoder2",
    architectures: &["Starcoder2ForCausalLM"],
    notes: "StarCoder 2 (3B, 7B, 15B): layer norms, biases, plain MLP",
    record: Record {
        norm_kind: NormKind::Layer,
        // The second name is that of configs written by transformers.
        norm_eps: &["layer_norm_epsilon", "norm_epsilon"],
        qkv_bias: BiasKey::unless("use_bias"),
        o_bias: BiasKey::unless("use_bias"),
        mlp: MlpRecord { bias: BiasKey::unless("use_bias"), ..MlpRecord::PLAIN },
        activation: ("hidden_act", Activation::GeluTanh),
        window: WindowRule::Every,
        defaults: Defaults { context: 4096, tied: true, norm_eps: Some(1e-5), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
