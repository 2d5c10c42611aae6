//! Granite 4 as far as it is made of attention: with or without experts, with or without rotation.

use super::rename::GRANITE_MOE;
use super::{FamilyInfo, granite, granite_moe};
use crate::config::Config;
use crate::error::ArchError;
use crate::feature::unsupported;
use crate::record::{
    ExpertLayers, ExpertRecord, MlpRecord, Record, RopeLayers, SharedInner, SharedRecord,
};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "granite_hybrid",
    architectures: &["GraniteMoeHybridForCausalLM"],
    notes: "Granite 4.0 without Mamba layers (350M, 1B, Micro)",
    record: Record {
        mlp: MlpRecord {
            gate: Some(".shared_mlp.gate_proj"),
            up: ".shared_mlp.up_proj",
            down: ".shared_mlp.output_linear",
            fused_gate_up: Some(".shared_mlp.input_linear"),
            inner_key: Some("shared_intermediate_size"),
            ..MlpRecord::LLAMA
        },
        experts: Some(ExpertRecord {
            layers: ExpertLayers::UnlessNone,
            shared: Some(SharedRecord {
                inner: SharedInner::Key("shared_intermediate_size", 1024),
                ..granite_moe::SHARED
            }),
            ..granite_moe::EXPERTS
        }),
        rope_layers: RopeLayers::IfNamed,
        renames: GRANITE_MOE,
        defaults: granite::DEFAULTS,
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// Mamba layers keep a state that is not in the cache.
fn check(config: &Config) -> Result<(), ArchError> {
    let kinds = config.find(&["layer_types", "layers_block_type"]);
    let is_mamba =
        |kind: &serde_json::Value| matches!(kind.as_str(), Some("mamba" | "linear_attention"));
    match kinds.and_then(|(_, kinds)| kinds.as_array()) {
        Some(kinds) if !kinds.iter().any(is_mamba) => Ok(()),
        _ => Err(unsupported(config, FAMILY.name, "Mamba 2 layers (`layer_types`)".to_owned())),
    }
}
