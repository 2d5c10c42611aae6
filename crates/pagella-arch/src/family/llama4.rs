//! Llama 4, text side: chunked attention, layers without rotation whose queries grow, weighed inputs.

use super::rename::LANGUAGE_MODEL;
use super::{FamilyInfo, accept};
use crate::record::{
    Defaults, ExpertLayers, ExpertRecord, GrowthRule, MlpRecord, QkNormRecord, Record, Renormalize,
    RopeLayers, SharedInner, SharedRecord, StackedExperts, WindowRule,
};
use crate::spec::{QkNormOrder, RopeStyle, RouterScore, Weigh};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "llama4",
    architectures: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
    notes: "Llama 4 Scout and Maverick, images not yet: chunked attention, sigmoid router",
    record: Record {
        qk_norm: Some(QkNormRecord {
            order: QkNormOrder::AfterRope,
            names: None,
            only_rotated: true,
            ..QkNormRecord::RMS
        }),
        query_growth: GrowthRule::Unrotated,
        mlp: MlpRecord {
            gate: Some(".feed_forward.gate_proj"),
            up: ".feed_forward.up_proj",
            down: ".feed_forward.down_proj",
            inner_key: Some("intermediate_size_mlp"),
            ..MlpRecord::LLAMA
        },
        experts: Some(ExpertRecord {
            router: ".feed_forward.router",
            parts: [
                ".feed_forward.experts.{e}.gate_proj",
                ".feed_forward.experts.{e}.up_proj",
                ".feed_forward.experts.{e}.down_proj",
            ],
            stacked: Some(StackedExperts::GateUpTransposed {
                gate_up: ".feed_forward.experts.gate_up_proj",
                down: ".feed_forward.experts.down_proj",
                alternate: false,
            }),
            experts: 16,
            experts_per_token: 1,
            score: RouterScore::Sigmoid,
            renormalize: Renormalize::Never,
            weigh: Weigh::Input,
            shared: Some(SharedRecord {
                parts: [
                    ".feed_forward.shared_expert.gate_proj",
                    ".feed_forward.shared_expert.up_proj",
                    ".feed_forward.shared_expert.down_proj",
                ],
                fused_gate_up: None,
                weight: None,
                inner: SharedInner::Intermediate,
            }),
            layers: ExpertLayers::Listed,
            ..ExpertRecord::QWEN
        }),
        window: WindowRule::RotatedChunks,
        rope_style: RopeStyle::GptJ,
        rope_layers: RopeLayers::Listed,
        renames: LANGUAGE_MODEL,
        defaults: Defaults {
            context: 131_072,
            head_dim: Some(128),
            rope_theta: 500_000.0,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
