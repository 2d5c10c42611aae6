//! DBRX: clamped queries, keys and values, experts stacked in one tensor.

use super::FamilyInfo;
use super::rename::DBRX;
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{
    Defaults, ExpertRecord, FusedLayout, FusedQkv, Record, Renormalize, StackedExperts,
};
use crate::spec::{Activation, NormKind};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "dbrx",
    architectures: &["DbrxForCausalLM"],
    notes: "DBRX base and instruct: 16 experts, clamped projections",
    record: Record {
        norm_kind: NormKind::Layer,
        norm_eps: &[],
        fused_qkv: Some(FusedQkv { name: ".self_attn.Wqkv", layout: FusedLayout::Parts }),
        clip_qkv: Some("attn_config.clip_qkv"),
        experts: Some(ExpertRecord {
            parts: [
                ".block_sparse_moe.experts.{e}.w1",
                ".block_sparse_moe.experts.{e}.v1",
                ".block_sparse_moe.experts.{e}.w2",
            ],
            // Which way down lies is the family's, whatever its shape.
            stacked: Some(StackedExperts::Rows([
                ".block_sparse_moe.experts.w1",
                ".block_sparse_moe.experts.v1",
                ".block_sparse_moe.experts.w2",
            ])),
            experts: 4,
            experts_per_token: 1,
            renormalize: Renormalize::UnlessNull(NORMALIZE),
            ..ExpertRecord::MIXTRAL
        }),
        activation: ("ffn_config.ffn_act_fn.name", Activation::Silu),
        renames: DBRX,
        defaults: Defaults { norm_eps: Some(1e-5), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check,
    exl2_caution: Some("without the clamp of queries, keys and values"),
};

/// The power of the norm by which weights are divided; null for none.
const NORMALIZE: &str = "ffn_config.moe_normalize_expert_weights";

/// Weights are divided by their sum; another power is another model.
fn check(config: &Config) -> Result<(), ArchError> {
    match config.find(&[NORMALIZE]) {
        Some((key, value)) if value.as_f64() != Some(1.0) => {
            Err(unsupported(config, FAMILY.name, format!("`{key}`: {value}")))
        }
        _ => Ok(()),
    }
}
