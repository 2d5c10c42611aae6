//! The registry of model families: one file and one line each.
//!
//! To add a family, write `family/<name>.rs` with a `FAMILY` constant (its differences from
//! Llama), list it in [`FAMILIES`], and add reference cases under `testdata/families`.

mod gemma2;
mod llama;
mod mistral;
mod mixtral;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;

use serde_json::Value;

use crate::config::Config;
use crate::error::{ArchError, excerpt};
use crate::record::Record;
use crate::spec::QuantFacts;

/// Every family, in the order of the documentation.
static FAMILIES: &[FamilyInfo] = &[
    llama::FAMILY,
    mistral::FAMILY,
    mixtral::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    qwen3_moe::FAMILY,
    gemma2::FAMILY,
    phi3::FAMILY,
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
    /// What a user should know about files of this family with these quantisation facts.
    pub(crate) caution: fn(&QuantFacts) -> Option<&'static str>,
}

/// The known families.
pub fn families() -> &'static [FamilyInfo] {
    FAMILIES
}

/// The family of an architecture string; Llama for an unknown one if the user says so.
pub(crate) fn find(
    config: &Config,
    architecture: &str,
    assume_llama: bool,
) -> Result<&'static FamilyInfo, ArchError> {
    let known = FAMILIES.iter().find(|family| family.architectures.contains(&architecture));
    match known {
        Some(family) => Ok(family),
        None if assume_llama => Ok(&llama::FAMILY),
        None => Err(ArchError::UnknownArchitecture {
            file: config.file(),
            name: excerpt(&Value::from(architecture)),
            known: FAMILIES
                .iter()
                .flat_map(|f| f.architectures)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// For families without refusals of their own.
fn accept(_: &Config) -> Result<(), ArchError> {
    Ok(())
}

/// For families whose files need no warning.
fn no_caution(_: &QuantFacts) -> Option<&'static str> {
    None
}
