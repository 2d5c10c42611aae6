//! Small model directories for the tests of this folder, and the way to the shared models.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::{
    BiasRule, Checkpoint, Dtype, FormatError, LinearRequest, OwnedLinear, load_linear,
};

/// A tensor that owns its bytes, so that tests can change it.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(name: &str, dtype: Dtype, shape: &[usize]) -> Self {
        let bits = dtype.bits().unwrap() as usize;
        let elements = shape.iter().fold(1usize, |n, extent| n.saturating_mul(*extent));
        let data = vec![0; elements * bits / 8];
        Self { name: name.to_owned(), dtype, shape: shape.to_vec(), data }
    }
}

/// The tensors of a synthetic linear called `layer`.
pub fn tensors_of(linear: &OwnedLinear) -> Vec<Tensor> {
    linear
        .named("layer")
        .into_iter()
        .map(|t| Tensor { name: t.name, dtype: t.dtype, shape: t.shape, data: t.data.to_vec() })
        .collect()
}

/// Writes a directory of one shard and opens it.
pub fn open(tensors: &[Tensor]) -> (tempfile::TempDir, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|t| TensorData {
            name: t.name.clone(),
            dtype: t.dtype,
            shape: t.shape.clone(),
            data: &t.data,
        })
        .collect();
    write_file(&dir.path().join("model.safetensors"), &tensors).unwrap();
    let checkpoint = Checkpoint::open(dir.path(), &[]).unwrap();
    (dir, checkpoint)
}

/// A request for the linear `layer` without bias.
pub fn request(bases: &[String], in_features: usize, out_features: usize) -> LinearRequest<'_> {
    LinearRequest {
        bases,
        fused: None,
        in_features,
        out_features,
        bias: BiasRule::IfPresent,
        transposed: false,
        gptq_v2: false,
    }
}

/// Fails unless loading `layer` of these tensors gives `code` and names the file and `text`.
#[track_caller]
pub fn check_refused(tensors: &[Tensor], size: (usize, usize), code: &str, text: &str) {
    let (_dir, checkpoint) = open(tensors);
    let error = load(&checkpoint, size).expect_err(text);
    assert_eq!(error.code(), code, "{error}");
    let message = error.to_string();
    assert!(message.contains(text), "{message}");
    let path = checkpoint.source().to_str().unwrap();
    assert!(message.contains(path), "{message}");
}

/// Loads `layer`, `(in_features, out_features)` large.
pub fn load(
    checkpoint: &Checkpoint,
    (in_features, out_features): (usize, usize),
) -> Result<pagella_formats::Linear<'_>, FormatError> {
    load_linear(checkpoint, &request(&["layer".to_owned()], in_features, out_features))
}

/// A directory of the shared interoperability data, or `None` after saying so loudly.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PAGELLA_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    println!("SKIPPED: {} (shared data not found)", found.display());
    None
}
