//! Token ids to score: from a safetensors file, or from a text.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pagella::Tokenizer;
use pagella_formats::Checkpoint;
use pagella_text::{AddBos, Span};

/// Name of the tensor.
const TENSOR: &str = "input_ids";
/// Largest text file, in bytes.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// The ids of a file, all dimensions but the last being 1.
pub fn read(path: &Path) -> Result<Vec<u32>> {
    let file = Checkpoint::open_file(path)?;
    let tensor = file.require(TENSOR)?;
    let values = tensor.to_i64_vec().or_else(|_| {
        let narrow = tensor.to_i32_vec()?;
        Ok::<_, pagella_formats::FormatError>(narrow.into_iter().map(i64::from).collect())
    })?;
    values
        .iter()
        .enumerate()
        .map(|(at, &id)| {
            u32::try_from(id).ok().with_context(|| {
                format!(
                    "{}: id {id} at position {at} is no token id: check the file",
                    path.display()
                )
            })
        })
        .collect()
}

/// The ids of a text file, with the beginning-of-sequence token where the model wants one.
pub fn of_text(path: &Path, model_dir: &Path) -> Result<Vec<u32>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= TEXT_BYTES_MAX, "{} is too large: split it", path.display());
    let text = String::from_utf8(bytes);
    let text = text.ok().with_context(|| format!("{} is not UTF-8: convert it", path.display()))?;
    let tokenizer = Tokenizer::from_dir(model_dir)?;
    Ok(tokenizer.encode(&[Span::Text(text)], AddBos::Auto)?)
}

/// Refuses ids that the model has no row for.
pub fn check_vocab(ids: &[u32], vocab: usize) -> Result<()> {
    match ids.iter().position(|&id| id as usize >= vocab) {
        Some(at) => anyhow::bail!(
            "id {} at position {at} is outside the vocabulary of {vocab}: the ids belong to another model",
            ids[at]
        ),
        None => Ok(()),
    }
}
