//! Token ids to score: from a safetensors file, or from a text.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pagella::Tokenizer;
use pagella_formats::Checkpoint;
use pagella_text::{AddBos, Span};

use super::tensors::require;

/// Name of the tensor.
const TENSOR: &str = "input_ids";
/// Largest text file, in bytes.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// The ids of a file, one text per row: `[n]` is one, `[rows, n]` are several of the same length.
pub fn read(path: &Path) -> Result<Vec<Vec<u32>>> {
    let file = Checkpoint::open_file(path)?;
    let tensor = require(&file, path, TENSOR)?;
    let (Some(&len), values) = (tensor.shape.last(), tensor.to_i64_vec()?) else {
        anyhow::bail!("{}: {TENSOR} is a single number: give a list of ids", path.display());
    };
    ensure!(len >= 2, "{}: there are fewer than two tokens: give a longer text", path.display());
    let row = |(row, ids): (usize, &[i64])| -> Result<Vec<u32>> {
        let id = |(at, &id): (usize, &i64)| {
            u32::try_from(id).ok().with_context(|| {
                let place = place(row, values.len() / len, at);
                format!("{}: id {id} at {place} is no token id: check the file", path.display())
            })
        };
        ids.iter().enumerate().map(id).collect()
    };
    values.chunks_exact(len).enumerate().map(row).collect()
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
pub fn check_vocab(texts: &[Vec<u32>], vocab: usize) -> Result<()> {
    for (row, ids) in texts.iter().enumerate() {
        if let Some(at) = ids.iter().position(|&id| id as usize >= vocab) {
            anyhow::bail!(
                "id {} at {} is outside the vocabulary of {vocab}: the ids belong to another model",
                ids[at],
                place(row, texts.len(), at)
            );
        }
    }
    Ok(())
}

/// Where an id is; the row is only told where there are several.
fn place(row: usize, n_rows: usize, at: usize) -> String {
    if n_rows > 1 { format!("position {at} of row {row}") } else { format!("position {at}") }
}
