//! What was measured of every candidate: `measurement.json`, which ExLlamaV2 writes and reads as well.
//!
//! The file does not depend on the size that is aimed at. Reading is strict: what is missing, of another
//! type or out of range is an error that names its place.

mod read;
mod write;

use std::path::Path;

use crate::error::QuantError;
use crate::params::LinearParams;

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
        let text = std::fs::read_to_string(path).map_err(QuantError::io(path, "cannot read"))?;
        read::parse(&text).map_err(|read::Fault { place, fault }| {
            let path = path.to_owned();
            QuantError::Measurement { path, place, fault }
        })
    }

    /// Writes a file; a reader never sees half of it.
    pub fn save(&self, path: &Path) -> Result<(), QuantError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        std::fs::write(&temporary, write::text(self))
            .and_then(|()| std::fs::rename(&temporary, path))
            .map_err(QuantError::io(path, "cannot write"))
    }

    /// What was measured of a module.
    pub fn module(&self, name: &str) -> Option<&ModuleMeasurement> {
        self.modules.iter().find(|(found, _)| found == name).map(|(_, module)| module)
    }
}

#[cfg(test)]
mod tests;
