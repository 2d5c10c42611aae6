//! The file, or the files, with the tensors of an adapter.

use std::path::{Component, Path};

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};

const TENSORS: &str = "adapter_model.safetensors";
const INDEX: &str = "adapter_model.safetensors.index.json";
const PICKLE: &str = "adapter_model.bin";

/// Largest index file that is read.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// Most files of an adapter.
const FILES_MAX: usize = 1024;

/// Maps the tensors of the adapter in `dir`.
pub(super) fn open(dir: &Path) -> Result<Checkpoint> {
    let single = dir.join(TENSORS);
    if single.exists() {
        return Checkpoint::open_file(&single);
    }
    let index = dir.join(INDEX);
    if index.exists() {
        let files = files_of(&index)?;
        return Checkpoint::open_files(dir, files.iter().map(|file| dir.join(file)).collect());
    }
    let path = dir.to_owned();
    Err(match dir.join(PICKLE).exists() {
        true => FormatError::PickledAdapter { path },
        false => FormatError::NoAdapterTensors { path },
    })
}

/// The files that an index names, sorted.
fn files_of(index: &Path) -> Result<Vec<String>> {
    let wrong = |problem: String| FormatError::AdapterConfig { path: index.to_owned(), problem };
    let bytes = super::config::read_limited(index, INDEX_BYTES_MAX)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| wrong(format!("is not JSON ({error}): download the adapter again")))?;
    let map = value.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| wrong("has no weight_map: download the adapter again".into()))?;
    let mut files = Vec::new();
    for file in map.values() {
        let name = file.as_str().unwrap_or_default();
        if !is_plain_name(name) {
            return Err(wrong(format!(
                "names the file {file}, which is not a safetensors file beside it: do not use this adapter"
            )));
        }
        files.push(name.to_owned());
    }
    files.sort();
    files.dedup();
    match files.len() {
        1..=FILES_MAX => Ok(files),
        n => Err(wrong(format!("names {n} files, allowed are 1 to {FILES_MAX}"))),
    }
}

/// Whether a name stays in its folder.
fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    is_one && name.ends_with(".safetensors") && !name.contains(['/', '\\', ':'])
}
