//! Phi 3, 3.5, 4 and 4-mini: fused projections, longrope, partial rotation, optional window.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, FusedLayout, FusedQkv, MlpRecord, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "phi3",
    architectures: &["Phi3ForCausalLM"],
    notes: "Phi 3 (mini, medium), 3.5-mini, 4, 4-mini: fused projections, longrope",
    record: Record {
        fused_qkv: Some(FusedQkv { name: ".self_attn.qkv_proj", layout: FusedLayout::Parts }),
        mlp: MlpRecord { fused_gate_up: Some(".mlp.gate_up_proj"), ..MlpRecord::LLAMA },
        window: WindowRule::Every,
        yarn_means_longrope: true,
        defaults: Defaults { context: 4096, original_context: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
