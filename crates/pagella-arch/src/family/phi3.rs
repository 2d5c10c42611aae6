//! Phi 3, 3.5, 4 and 4-mini: fused projections, longrope, partial rotation, optional window.

use super::{FamilyInfo, accept, no_caution};
use crate::record::{Defaults, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "phi3",
    architectures: &["Phi3ForCausalLM"],
    notes: "Phi 3 (mini, medium), 3.5-mini, 4, 4-mini: fused projections, longrope",
    record: Record {
        fused_qkv: Some(".self_attn.qkv_proj"),
        fused_gate_up: Some(".mlp.gate_up_proj"),
        window: WindowRule::Every,
        yarn_means_longrope: true,
        defaults: Defaults { context: 4096, original_context: Some(4096), ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    caution: no_caution,
};
