//! Calibration: the rows of token ids that are run through a model to see what its linears are fed.
//!
//! Rows come from the user's file, or from the model itself and the project's documentation, so that
//! no foreign text is shipped. What must always hold: the same model, file and seed give the same
//! rows, on any number of threads.

mod docs;
mod file;
mod parquet;
mod sampled;

use std::path::{Path, PathBuf};

use pagella_backend::Backend;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::{Checkpoint, Dtype, OtherDtype};
use pagella_text::{TextError, Tokenizer};

use crate::error::QuantError;

/// How calibration without a file is called in `config.json`.
const DEFAULT_NAME: &str = "(default)";

/// The tensor in which rows are kept.
const TENSOR: &str = "input_ids";

/// Of so many rows without a file one is documentation; the others are the model's own writing.
const ROWS_PER_DOCUMENTATION: usize = 8;

/// Rows of token ids, all of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    ids: Vec<Vec<u32>>,
    dataset: String,
}

/// Rows at least, and at most, where nobody says how many.
const ROWS_DEFAULT: std::ops::RangeInclusive<usize> = 32..=128;

/// Tokens per input of the widest linear that tell its inputs apart.
const TOKENS_PER_INPUT: usize = 4;

/// What calibration is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationOptions {
    /// Text, JSONL or Parquet; `None`: the model's own writing and documentation.
    pub file: Option<PathBuf>,
    /// Most rows; `None`: as many as the widest linear needs.
    pub rows: Option<usize>,
    /// Tokens per row.
    pub length: usize,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Has the model write without having all of it in memory: not at all.
    pub low_memory: bool,
}

impl CalibrationOptions {
    /// Rows for a model whose widest linear has so many inputs.
    pub(crate) fn rows_for(&self, inputs: usize) -> usize {
        let needed = (TOKENS_PER_INPUT * inputs).div_ceil(self.length.max(1));
        self.rows.unwrap_or(needed.clamp(*ROWS_DEFAULT.start(), *ROWS_DEFAULT.end()))
    }
}

impl Rows {
    /// Rows of ids; those shorter than the first are left out.
    fn new(mut ids: Vec<Vec<u32>>, dataset: String) -> Self {
        let length = ids.first().map_or(0, Vec::len);
        ids.retain(|row| row.len() == length);
        Self { ids, dataset }
    }

    /// Rows that somebody else has made; those shorter than the first are left out.
    pub fn of_ids(ids: Vec<Vec<u32>>) -> Self {
        Self::new(ids, DEFAULT_NAME.to_owned())
    }

    /// The ids of a row.
    pub fn row(&self, row: usize) -> &[u32] {
        self.ids.get(row).map_or(&[], Vec::as_slice)
    }

    /// A part of a row, as the only one.
    pub(crate) fn piece(&self, row: usize, range: std::ops::Range<usize>) -> Self {
        let ids = self.row(row).get(range).map(<[u32]>::to_vec);
        Self { ids: ids.into_iter().collect(), dataset: self.dataset.clone() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Tokens of each.
    pub fn length(&self) -> usize {
        self.row(0).len()
    }

    /// The name of the file that they are from.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// Keeps them in a file.
    pub(crate) fn save(&self, path: &Path) -> Result<(), QuantError> {
        let data: Vec<u8> =
            self.ids.iter().flatten().flat_map(|id| i64::from(*id).to_le_bytes()).collect();
        let shape = vec![self.count(), self.length()];
        let dtype = Dtype::Other(OtherDtype::I64);
        let tensor = TensorData { name: TENSOR.to_owned(), dtype, shape, data: &data };
        Ok(write_file(path, &[tensor])?)
    }

    /// Reads what [`Rows::save`] kept.
    pub(crate) fn load(path: &Path, dataset: String) -> Result<Self, QuantError> {
        let file = Checkpoint::open_file(path)?;
        let tensor = file.require(TENSOR)?;
        let length = tensor.shape.last().copied().unwrap_or(1).max(1);
        let ids = tensor.to_i64_vec()?;
        let row = |row: &[i64]| row.iter().map(|id| *id as u32).collect();
        Ok(Self::new(ids.chunks_exact(length).map(row).collect(), dataset))
    }
}

/// The name that `config.json` gives to the calibration of these options.
pub(crate) fn dataset_name(options: &CalibrationOptions) -> String {
    let name = options.file.as_ref().and_then(|file| file.file_name());
    name.map_or(DEFAULT_NAME.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Makes the rows of calibration for the model in `dir`. `tick` hears how much of it is done; `kept` is
/// where unfinished rows are kept.
pub(crate) fn prepare<B: Backend>(
    dir: &Path,
    spec: &pagella_arch::ModelSpec,
    backend: B,
    options: &CalibrationOptions,
    kept: &Path,
    tick: &mut dyn FnMut(f64) -> Result<(), QuantError>,
) -> Result<Rows, QuantError> {
    let dataset = dataset_name(options);
    let length = options.length.min(spec.context);
    let inputs = spec.layers.iter().flat_map(|layer| layer.linear_specs());
    let rows = options.rows_for(inputs.map(|(_, linear)| linear.in_features).max().unwrap_or(0));
    if let Some(path) = &options.file {
        let tokenizer = Tokenizer::from_dir(dir)?;
        let ids = file::ids(path, dir, &tokenizer, rows.saturating_mul(length))?;
        return cut(ids, rows, length, path, dataset);
    }
    let tokenizer = tokenizer(dir)?;
    let from_docs = match (&tokenizer, options.low_memory) {
        (None, true) => return Err(QuantError::NoCalibration { dir: dir.to_owned() }),
        (None, false) => 0,
        (Some(_), true) => rows,
        (Some(_), false) => rows / ROWS_PER_DOCUMENTATION,
    };
    let mut ids = match &tokenizer {
        Some(tokenizer) => docs::rows(dir, tokenizer, from_docs, length)?,
        None => Vec::new(),
    };
    let n_sampled = if options.low_memory { 0 } else { rows - ids.len() };
    let bos = spec.tokens.bos;
    let start = sampled::Start { bos, eos: &spec.tokens.eos, seed: options.seed, kept };
    let mut sampled = sampled::rows(dir, spec, backend, n_sampled, length, &start, tick)?;
    sampled.append(&mut ids);
    for id in sampled.iter_mut().flatten() {
        // Tokenizers may know more ids than the embedding has rows.
        *id = if (*id as usize) < spec.vocab { *id } else { 0 };
    }
    Ok(Rows::new(sampled, dataset))
}

/// The model's tokenizer; `None` if there is none, or one of a kind that this program does not know. One
/// that is damaged would be copied as it is: better to hear of it before.
fn tokenizer(dir: &Path) -> Result<Option<Tokenizer>, QuantError> {
    use TextError::{NoTokenizer, UnsupportedFile, UnsupportedStage};
    match Tokenizer::from_dir(dir) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(NoTokenizer { .. } | UnsupportedFile { .. } | UnsupportedStage { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The rows of a text file, or of the documentation, without anything that is drawn.
pub fn of_text(
    dir: &Path,
    path: Option<&Path>,
    rows: usize,
    length: usize,
) -> Result<Rows, QuantError> {
    let tokenizer = Tokenizer::from_dir(dir)?;
    match path {
        Some(path) => {
            let name = path.to_string_lossy().into_owned();
            let ids = file::ids(path, dir, &tokenizer, rows.saturating_mul(length))?;
            cut(ids, rows, length, path, name)
        }
        None => {
            let ids = docs::rows(dir, &tokenizer, rows, length)?;
            Ok(Rows::new(ids, DEFAULT_NAME.to_owned()))
        }
    }
}

/// Cuts a stream of ids into rows.
fn cut(
    ids: Vec<u32>,
    rows: usize,
    length: usize,
    path: &Path,
    dataset: String,
) -> Result<Rows, QuantError> {
    // A short text is one short row.
    let length = length.min(ids.len());
    if length < file::TOKENS_MIN {
        let (path, tokens) = (path.to_owned(), ids.len());
        return Err(QuantError::TooLittleText { path, tokens, min: file::TOKENS_MIN });
    }
    let rows = ids.chunks_exact(length).take(rows).map(<[u32]>::to_vec).collect();
    Ok(Rows::new(rows, dataset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_tokenizer_is_told_from_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(tokenizer(dir.path()).unwrap().is_none());
        std::fs::write(dir.path().join("tokenizer.json"), "{\"version\":").unwrap();
        let error = tokenizer(dir.path()).err().unwrap().to_string();
        assert!(error.contains("tokenizer.json is not valid"), "{error}");
    }
}
