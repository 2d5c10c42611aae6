//! Small model directories for the tests of this folder, and the way to the shared models.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use half::f16;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::synthetic::{IntegerMatrix, RecipeTensor};
use pagella_formats::{
    BiasRule, Checkpoint, Dtype, FormatError, GptqZeros, Linear, LinearRequest, OwnedLinear,
    load_linear,
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

/// A tensor of 32-bit words.
pub fn words(name: &str, shape: &[usize], words: impl IntoIterator<Item = u32>) -> Tensor {
    let data = words.into_iter().flat_map(u32::to_le_bytes).collect();
    Tensor { name: name.to_owned(), dtype: Dtype::I32, shape: shape.to_vec(), data }
}

/// The generator of test vectors.
pub fn generated(index: u32) -> u32 {
    (index + 1).wrapping_mul(0x9e37_79b1)
}

/// Scales `0.001·(1 + n) + 0.01·g` of two groups, as binary16.
pub fn vector_scales(columns: usize) -> Tensor {
    let scale = |at: usize| 0.001 * (1 + at % columns) as f64 + 0.01 * (at / columns) as f64;
    let data = (0..2 * columns).flat_map(|at| f16::from_f64(scale(at)).to_le_bytes()).collect();
    let name = "layer.scales".to_owned();
    Tensor { name, dtype: Dtype::F16, shape: vec![2, columns], data }
}

/// SHA-256 of binary16 values, little-endian.
pub fn sha256(values: &[f16]) -> String {
    use sha2::{Digest, Sha256};
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tensors that a recipe gives for a linear called `layer`.
pub fn tensors_of_recipe(matrix: &IntegerMatrix) -> Vec<Tensor> {
    let tensors = matrix.tensors("layer").into_iter();
    let owned =
        |t: RecipeTensor| Tensor { name: t.name, dtype: t.dtype, shape: t.shape, data: t.data };
    tensors.map(owned).collect()
}

/// Weights of a matrix, made up, about as large as those of a trained one.
pub fn made_up(rows: usize, columns: usize) -> Vec<f32> {
    let value = |at: usize| (generated(at as u32) >> 8) as f32 / (1u32 << 24) as f32 - 0.45;
    (0..rows * columns).map(|at| 0.1 * value(at)).collect()
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
        gptq_zeros: GptqZeros::LessOne,
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

/// [`load`] of a linear of integer codes.
#[track_caller]
pub fn load_integers(
    checkpoint: &Checkpoint,
    (in_features, out_features): (usize, usize),
    gptq_zeros: GptqZeros,
) -> pagella_formats::GptqLinear<'_> {
    let bases = ["layer".to_owned()];
    let request = LinearRequest { gptq_zeros, ..request(&bases, in_features, out_features) };
    match load_linear(checkpoint, &request).unwrap() {
        Linear::Gptq(linear) => linear,
        other => panic!("{} has no integer codes", other.kind().name()),
    }
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
