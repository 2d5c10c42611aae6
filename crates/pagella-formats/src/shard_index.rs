//! Which file of a directory holds a tensor when two claim it.
//!
//! `model.safetensors.index.json` is often stale (quantisers copy it from the source model), so
//! it is not read at all unless a name occurs in two files, and then it is believed only when
//! everything it says is true of the files present.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

/// File name of the index.
const INDEX_NAME: &str = "model.safetensors.index.json";

/// Longest index file read, in bytes.
const INDEX_BYTES_MAX: u64 = 100_000_000;

/// The part of an index file that matters.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ShardIndex {
    /// Tensor name as stored → file name.
    weight_map: HashMap<String, String>,
}

impl ShardIndex {
    /// Reads the index of `dir`; `None` when there is none or it is not an index.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let file = File::open(dir.join(INDEX_NAME)).ok()?;
        let mut text = Vec::new();
        file.take(INDEX_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether every tensor it lists is, by `holds(file name, tensor)`, where it says.
    pub(crate) fn is_true(&self, holds: impl Fn(&str, &str) -> bool) -> bool {
        self.weight_map.iter().all(|(tensor, file)| holds(file, tensor))
    }

    /// The file that it assigns to a tensor (name as stored).
    pub(crate) fn file_of(&self, tensor: &str) -> Option<&str> {
        self.weight_map.get(tensor).map(String::as_str)
    }
}
