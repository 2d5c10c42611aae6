//! gpt-oss: attention sinks, every other layer local, clamped experts with biases.

use super::FamilyInfo;
use super::rename::GPT_OSS;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{BiasKey, Defaults, ExpertRecord, Record, StackedExperts, WindowRule};
use crate::spec::{Activation, BiasRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gpt_oss",
    architectures: &["GptOssForCausalLM"],
    notes: "gpt-oss 20B and 120B, MXFP4 (on the CPU), F16 or BF16: attention sinks, clamped SwiGLU",
    record: Record {
        qkv_bias: BiasKey::unless("attention_bias"),
        o_bias: BiasKey::unless("attention_bias"),
        sinks: Some(".self_attn.sinks"),
        experts: Some(ExpertRecord {
            router: ".mlp.router",
            router_bias: BiasRule::Required,
            stacked: Some(StackedExperts::GateUpTransposed {
                gate_up: ".mlp.experts.gate_up_proj",
                down: ".mlp.experts.down_proj",
                alternate: true,
            }),
            bias: BiasKey::ALWAYS,
            experts: 128,
            experts_per_token: 4,
            ..ExpertRecord::QWEN
        }),
        activation: ("hidden_act", Activation::ClampedSwiglu { limit: 7.0 }),
        window: WindowRule::Alternating(1),
        renames: GPT_OSS,
        defaults: Defaults {
            context: 131_072,
            head_dim: Some(64),
            window: Some(128),
            rope_theta: 150_000.0,
            rope_scaling: r#"{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}"#,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// The slope of the gate's sigmoid is part of the activation.
fn check(config: &Config) -> Result<(), ArchError> {
    match config.find(&["swiglu_alpha"]) {
        Some((key, value)) if value.as_f64() != Some(1.702) => {
            Err(unsupported(config, FAMILY.name, format!("`{key}`: {value}")))
        }
        _ => Ok(()),
    }
}
