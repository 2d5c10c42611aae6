//! What was measured of every candidate: `measurement.json`, which ExLlamaV2 writes and reads as well.
//!
//! The file does not depend on the size that is aimed at. Reading is strict: what is missing, of another
//! type or out of range is an error that names its place.

mod read;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::error::QuantError;
use crate::job::write_text;
use crate::params::LinearParams;

/// Largest file. What is measured of 235 billion parameters in experts takes 700 MB.
const BYTES_MAX: u64 = 1 << 30;

/// Measured candidates of all modules.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Names such as `model.layers.0.self_attn` with what was measured, in the order of the model.
    pub modules: Vec<(String, ModuleMeasurement)>,
    /// Index of the last module in ExLlamaV2's list of modules.
    pub last_module_idx: u64,
}

/// What was measured of one module.
#[derive(Clone, Debug, PartialEq)]
pub enum ModuleMeasurement {
    /// Norms and the head, of which nothing is measured.
    Nothing,
    /// The candidates of attention, of an MLP or of experts.
    Candidates(Vec<MeasuredCandidate>),
    /// Those of a layer in which attention and MLP read the same input.
    Parallel {
        /// Attention.
        attn: Vec<MeasuredCandidate>,
        /// MLP.
        mlp: Vec<MeasuredCandidate>,
    },
}

/// One candidate and what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredCandidate {
    /// One less the relative error of the module's output; at least 1e-6.
    pub accuracy: f64,
    /// What the whole model's answers lose by it, if that was measured; ExLlamaV2 does not know it.
    pub divergence: Option<f64>,
    /// Bits of all its linears.
    pub total_bits: u64,
    /// Parameters by short names such as `q_proj`.
    pub linears: Vec<(String, LinearParams)>,
}

impl MeasuredCandidate {
    /// The parameters of a linear by its short name.
    pub fn params(&self, linear: &str) -> Option<&LinearParams> {
        self.linears.iter().find(|(name, _)| name == linear).map(|(_, params)| params)
    }
}

impl Measurement {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, QuantError> {
        read::parse(&text_of(path)?).map_err(|read::Fault { place, fault }| {
            let path = path.to_owned();
            QuantError::Measurement { path, place, fault }
        })
    }

    /// Writes a file; a reader never sees half of it.
    pub fn save(&self, path: &Path) -> Result<(), QuantError> {
        write_text(path, &write::text(self))
    }

    /// What stands in its file.
    pub(crate) fn to_value(&self) -> Value {
        write::value(self)
    }

    /// What was measured of a module.
    pub fn module(&self, name: &str) -> Option<&ModuleMeasurement> {
        self.modules.iter().find(|(found, _)| found == name).map(|(_, module)| module)
    }
}

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Result<String, QuantError> {
    let mut text = String::new();
    let file = File::open(path).map_err(QuantError::io(path, "cannot read"))?;
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(QuantError::io(path, "cannot read"))?;
    if text.len() as u64 > BYTES_MAX {
        let fault = format!("larger than {} MiB, which no measurement is", BYTES_MAX >> 20);
        let (path, place) = (path.to_owned(), "the file".to_owned());
        return Err(QuantError::Measurement { path, place, fault });
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
