//! MiniCPM 1 and 2: Llama with multipliers on embeddings, branches and logits.

use super::FamilyInfo;
use crate::config::Config;
use crate::error::ArchError;
use crate::limits;
use crate::record::{Defaults, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "minicpm",
    architectures: &["MiniCPMForCausalLM"],
    notes: "MiniCPM 1B, 2B and their kin: scaled embeddings, branches and logits",
    record: Record {
        logit_base_dim: true,
        defaults: Defaults { tied: true, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check,
    exl2_caution: None,
};

/// Without these its own code takes 1, which is right for no model.
fn check(config: &Config) -> Result<(), ArchError> {
    for key in ["scale_emb", "scale_depth", "dim_model_base"] {
        config.required_float(&[key], limits::MULTIPLIER)?;
    }
    Ok(())
}
