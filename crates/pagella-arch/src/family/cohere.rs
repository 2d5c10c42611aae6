//! Command R: halves side by side, layer norms without biases, paired rotation, scaled logits.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, LayerNorms, QkNormRecord, Record};
use crate::spec::{BlockOrder, NormKind, RopeStyle};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "cohere",
    architectures: &["CohereForCausalLM"],
    notes: "Command R, R+, Aya: parallel blocks, layer norms, optional norm of heads",
    record: RECORD,
    check: accept,
    exl2_caution: None,
};

pub(super) const RECORD: Record = Record {
    order: BlockOrder::Parallel,
    layer_norms: LayerNorms { pre_mlp: None, ..LayerNorms::LLAMA },
    norm_kind: NormKind::Layer,
    norm_eps: &["layer_norm_eps"],
    qk_norm: Some(QkNormRecord { kind: NormKind::Layer, default_on: false, ..QkNormRecord::RMS }),
    rope_style: RopeStyle::GptJ,
    requires_bos: true,
    defaults: Defaults {
        context: 8192,
        tied: true,
        norm_eps: Some(1e-5),
        logit_scale: 0.0625,
        rope_theta: 500_000.0,
        ..Defaults::LLAMA
    },
    ..Record::LLAMA
};
