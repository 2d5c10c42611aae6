//! What a quantised model consists of on disk: the tensors of each part, the shards that they are put
//! into, and the files beside them.

mod config;
mod kept;
mod shards;

pub(crate) use config::{QuantizationConfig, copy_files};
pub(crate) use kept::{Kept, Naming};
pub(crate) use shards::{PartFile, write_shards};

use std::path::Path;

use pagella_formats::Dtype;
use pagella_formats::safetensors::write::{TensorData, write_file};

use crate::error::QuantError;

/// A tensor on its way to a file.
pub(crate) struct OwnedTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// Writes the tensors of one part, safely: the file is whole or not there.
pub(crate) fn write_part(path: &Path, tensors: &[OwnedTensor]) -> Result<(), QuantError> {
    let views: Vec<TensorData<'_>> = tensors
        .iter()
        .map(|tensor| TensorData {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            data: &tensor.data,
        })
        .collect();
    Ok(write_file(path, &views)?)
}
