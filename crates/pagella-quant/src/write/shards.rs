//! Parts to shards: tensors in the order of the model, each shard as full as it may be.
//!
//! The bytes are copied from the mapped files of the parts, so memory does not hold a shard. A model is
//! written beside its place and takes it when it is whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pagella_formats::Checkpoint;
use pagella_formats::safetensors::write::{TensorData, write_file};
use serde_json::json;

use super::Naming;
use crate::error::QuantError;

/// A file of a part.
pub(crate) struct PartFile {
    /// The file.
    pub path: PathBuf,
    /// What its tensors are called.
    pub naming: Naming,
}

/// Where a tensor lies among the parts.
struct Place {
    part: usize,
    /// In its part.
    name: String,
    /// In the model.
    full_name: String,
    bytes: u64,
}

/// Writes the tensors of all parts to `dir`; gives the bytes of all of them. A shard holds at most
/// `shard_bytes`.
pub(crate) fn write_shards(
    dir: &Path,
    parts: &[PartFile],
    shard_bytes: u64,
    tick: &mut dyn FnMut(f64) -> Result<(), QuantError>,
) -> Result<u64, QuantError> {
    let files: Vec<Checkpoint> =
        parts.iter().map(|part| Checkpoint::open_file(&part.path)).collect::<Result<_, _>>()?;
    let shards = deal(parts, &files, shard_bytes)?;
    let mut listed = BTreeMap::new();
    let total: u64 = shards.iter().flatten().map(|place| place.bytes).sum();
    for (index, shard) in shards.iter().enumerate() {
        tick(index as f64 / shards.len() as f64)?;
        let name = shard_name(index, shards.len());
        let mut tensors = Vec::with_capacity(shard.len());
        for place in shard {
            let tensor = files[place.part].require(&place.name)?;
            tensors.push(TensorData {
                name: place.full_name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape.to_vec(),
                data: tensor.data,
            });
            listed.insert(place.full_name.clone(), name.clone());
        }
        write_file(&dir.join(name), &tensors)?;
    }
    let index = json!({ "metadata": { "total_size": total }, "weight_map": listed });
    crate::job::write_text(&dir.join("output.safetensors.index.json"), &format!("{index:#}\n"))?;
    Ok(total)
}

fn shard_name(index: usize, count: usize) -> String {
    match count {
        1 => "output.safetensors".to_owned(),
        _ => format!("output-{:05}-of-{count:05}.safetensors", index + 1),
    }
}

/// Deals tensors to shards, in order.
fn deal(
    parts: &[PartFile],
    files: &[Checkpoint],
    shard_bytes: u64,
) -> Result<Vec<Vec<Place>>, QuantError> {
    let mut shards: Vec<Vec<Place>> = vec![Vec::new()];
    let mut filled = 0;
    for (part, (file, PartFile { naming, .. })) in files.iter().zip(parts).enumerate() {
        for name in file.names() {
            let bytes = file.require(name)?.data.len() as u64;
            if bytes > shard_bytes {
                let (tensor, limit) = (name.to_owned(), shard_bytes);
                return Err(QuantError::ShardTooSmall { tensor, bytes, limit });
            }
            if filled + bytes > shard_bytes {
                shards.push(Vec::new());
                filled = 0;
            }
            filled += bytes;
            if let Some(shard) = shards.last_mut() {
                let full_name = naming.full(name);
                shard.push(Place { part, name: name.to_owned(), full_name, bytes });
            }
        }
    }
    Ok(shards)
}
