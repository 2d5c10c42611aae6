//! Writing safetensors files: a temporary file in the same directory, then a rename.
//!
//! The bytes depend only on the tensors, not on the order they were given in. A file under its
//! final name is always complete: readers never see a half-written one, and a failure leaves
//! nothing behind.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::header::tensor_bytes;
use crate::dtype::Dtype;
use crate::error::{FormatError, Result};

/// The header is padded with spaces to a multiple of this, so that the data is aligned.
const HEADER_ALIGNMENT: usize = 8;

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct TensorData<'a> {
    /// Its name, unique in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub data: &'a [u8],
}

/// Writes `tensors` to `path`, replacing what is there.
///
/// Tensors are laid out by decreasing element size, then by name, so that each is aligned.
pub fn write_file(path: &Path, tensors: &[TensorData<'_>]) -> Result<()> {
    write(path, tensors, File::sync_all)
}

/// As [`write_file`], for files that can be made again: does not wait until the bytes are on the disk,
/// so that after a crash the file may be there and damaged.
pub fn write_scratch_file(path: &Path, tensors: &[TensorData<'_>]) -> Result<()> {
    write(path, tensors, |_| Ok(()))
}

fn write(
    path: &Path,
    tensors: &[TensorData<'_>],
    sync: impl Fn(&File) -> io::Result<()>,
) -> Result<()> {
    let mut order: Vec<&TensorData<'_>> = tensors.iter().collect();
    order.sort_by(|a, b| b.dtype.bits().cmp(&a.dtype.bits()).then_with(|| a.name.cmp(&b.name)));
    let header = header_bytes(path, &order)?;
    let temporary = temporary_path(path);
    let written =
        write_all(&temporary, &header, &order, sync).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        // The error that matters is the first one; a leftover that cannot be removed is hidden.
        drop(fs::remove_file(&temporary));
        FormatError::Io { path: path.to_owned(), source }
    })
}

/// Length, JSON and padding, after checking each tensor against its own description.
fn header_bytes(path: &Path, order: &[&TensorData<'_>]) -> Result<Vec<u8>> {
    let mut entries = Map::new();
    let mut begin = 0u64;
    for tensor in order {
        let refuse = |reason| {
            let (path, tensor) = (path.to_owned(), tensor.name.clone());
            Err(FormatError::Unwritable { path, tensor, reason })
        };
        let expected = tensor.dtype.bits().and_then(|bits| tensor_bytes(&tensor.shape, bits));
        if expected != Some(tensor.data.len() as u64) {
            return refuse("its bytes do not fill its shape");
        }
        if tensor.name == "__metadata__" {
            return refuse("the name is reserved");
        }
        let end = begin + tensor.data.len() as u64;
        let entry = json!({
            "dtype": tensor.dtype.tag(),
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        });
        if entries.insert(tensor.name.clone(), entry).is_some() {
            return refuse("the name is used twice");
        }
        begin = end;
    }
    let mut json = Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(HEADER_ALIGNMENT), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    Ok(header)
}

/// A hidden sibling of `path`, so that the rename stays on one file system.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn write_all(
    path: &Path,
    header: &[u8],
    order: &[&TensorData<'_>],
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(header)?;
    for tensor in order {
        file.write_all(tensor.data)?;
    }
    // Without this a crash soon after the rename could leave an empty file under the final name.
    sync(&file.into_inner()?)
}

#[cfg(test)]
mod tests;
