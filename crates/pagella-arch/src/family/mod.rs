//! The registry of model families: one file and one line each.
//!
//! To add a family, write `family/<name>.rs` with a `FAMILY` constant (its differences from
//! Llama), list it in [`FAMILIES`], and add reference cases under `testdata/families`.

mod arcee;
mod cohere;
mod cohere2;
mod cwm;
mod dbrx;
mod deepseek_v2;
mod deepseek_v3;
mod dots1;
mod ernie;
mod ernie_moe;
mod exaone4;
mod gemma;
mod gemma2;
mod gemma3;
mod gemmoe;
mod glm;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod gpt2;
mod gpt_bigcode;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod granite_moe;
mod hunyuan;
mod hunyuan_moe;
mod index;
mod internlm2;
mod llama;
mod llama4;
mod minicpm;
mod minimax_m2;
mod ministral3;
mod mistral;
mod mixtral;
mod olmo2;
mod olmo3;
mod olmoe;
mod orion;
mod phi3;
mod pixtral;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen3_moe;
mod qwen3_vl;
mod qwen3_vl_moe;
mod refused;
mod rename;
mod seed_oss;
mod smollm3;
mod solar_open;
mod starcoder2;
mod yi;

use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::record::Record;

/// Every family, in the order of the documentation.
static FAMILIES: &[FamilyInfo] = &[
    llama::FAMILY,
    mistral::FAMILY,
    mixtral::FAMILY,
    pixtral::FAMILY,
    ministral3::FAMILY,
    yi::FAMILY,
    orion::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    qwen3_moe::FAMILY,
    qwen2_moe::FAMILY,
    qwen2_vl::FAMILY,
    qwen3_vl::FAMILY,
    qwen3_vl_moe::FAMILY,
    gemma::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    gemmoe::FAMILY,
    starcoder2::FAMILY,
    cohere::FAMILY,
    cohere2::FAMILY,
    dbrx::FAMILY,
    phi3::FAMILY,
    gpt_bigcode::FAMILY,
    gpt2::FAMILY,
    minicpm::FAMILY,
    internlm2::FAMILY,
    index::FAMILY,
    granite::FAMILY,
    granite_moe::FAMILY,
    granite_hybrid::FAMILY,
    glm::FAMILY,
    glm4::FAMILY,
    glm4_moe::FAMILY,
    glm4_moe_lite::FAMILY,
    solar_open::FAMILY,
    dots1::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    olmoe::FAMILY,
    smollm3::FAMILY,
    cwm::FAMILY,
    gpt_oss::FAMILY,
    llama4::FAMILY,
    minimax_m2::FAMILY,
    exaone4::FAMILY,
    hunyuan::FAMILY,
    hunyuan_moe::FAMILY,
    seed_oss::FAMILY,
    ernie::FAMILY,
    ernie_moe::FAMILY,
    arcee::FAMILY,
    deepseek_v2::FAMILY,
    deepseek_v3::FAMILY,
];

/// A family of models that share one structure.
#[derive(Clone, Copy, Debug)]
pub struct FamilyInfo {
    /// Short name, e.g. `llama`.
    pub name: &'static str,
    /// Strings in `architectures` that select it.
    pub architectures: &'static [&'static str],
    /// Which models belong to it, and what sets them apart; one line.
    pub notes: &'static str,
    /// Its differences from Llama.
    pub(crate) record: Record,
    /// Refuses configs that ask for what the family cannot do here.
    pub(crate) check: fn(&Config) -> Result<(), ArchError>,
    /// How ExLlamaV2 went wrong when it calibrated EXL2 files of this family, if it did.
    pub(crate) exl2_caution: Option<&'static str>,
}

/// The known families.
pub fn families() -> &'static [FamilyInfo] {
    FAMILIES
}

/// The family of an architecture string; Llama for an unknown one if the user says so. A vision model
/// may hold text models of several families: the first that accepts the config has it.
pub(crate) fn find(
    config: &Config,
    architecture: &str,
    assume_llama: bool,
) -> Result<&'static FamilyInfo, ArchError> {
    let named = || FAMILIES.iter().filter(|family| family.architectures.contains(&architecture));
    let known = named().find(|family| (family.check)(config).is_ok()).or_else(|| named().next());
    let refused = || refused::REFUSED.iter().find(|(name, _)| *name == architecture);
    match known {
        Some(family) => Ok(family),
        None if let Some((name, missing)) = refused() => {
            Err(ArchError::MissingBlock { file: config.file(), name, missing })
        }
        None if assume_llama => Ok(&llama::FAMILY),
        None => Err(ArchError::UnknownArchitecture {
            file: config.file(),
            name: excerpt(&Value::from(architecture)),
            known: FAMILIES.len(),
        }),
    }
}

/// For families without refusals of their own.
fn accept(_: &Config) -> Result<(), ArchError> {
    Ok(())
}
