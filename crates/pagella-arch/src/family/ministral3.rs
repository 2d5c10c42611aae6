//! Ministral 3: Mistral with YaRN, and queries that grow beyond the original length.

use super::FamilyInfo;
use super::rename::LANGUAGE_MODEL;
use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::feature::unsupported;
use crate::record::{Defaults, GrowthRule, Record, WindowRule};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "ministral3",
    architectures: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
    notes: "Ministral 3 (3B, 8B, 14B), images not yet: queries grow beyond the original length",
    record: Record {
        query_growth: GrowthRule::Scaled,
        window: WindowRule::Every,
        renames: LANGUAGE_MODEL,
        defaults: Defaults {
            context: 262_144,
            head_dim: Some(128),
            rope_scaling: r#"{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384}"#,
            ..Defaults::LLAMA
        },
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// Other text models inside the same vision model are of other families.
fn check(config: &Config) -> Result<(), ArchError> {
    match config.in_text("model_type") {
        Some(kind) if kind.as_str() != Some("ministral3") => {
            let feature = format!("`text_config.model_type`: {}", excerpt(kind));
            Err(unsupported(config, FAMILY.name, feature))
        }
        _ => Ok(()),
    }
}
