//! Model directories for tests: written from recipes, or found beside the workspace.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use pagella_backend::{Backend, KvFormat, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_formats::Dtype;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_model::{LoadOptions, Model, ModelError};

/// A tensor to be written, which a test may change first.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// An F32 tensor.
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), data }
    }

    /// A copy of one that was made elsewhere.
    pub fn of(data: &TensorData<'_>) -> Self {
        let (name, shape) = (data.name.clone(), data.shape.clone());
        Self { name, dtype: data.dtype, shape, data: data.data.to_vec() }
    }

    /// The values of an F32 tensor.
    pub fn to_f32(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::F32, "{}", self.name);
        let (values, _) = self.data.as_chunks();
        values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// An F32 tensor of one value.
    pub fn filled(name: &str, shape: &[usize], value: f32) -> Self {
        Self::f32(name, shape, &vec![value; shape.iter().product()])
    }
}

/// Writes `config` and `tensors` as a model directory.
pub fn write_model(dir: &Path, config: &str, tensors: &[Tensor]) {
    std::fs::write(dir.join("config.json"), config).unwrap();
    let data: Vec<TensorData<'_>> = tensors
        .iter()
        .map(|tensor| TensorData {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            data: &tensor.data,
        })
        .collect();
    write_file(&dir.join("model.safetensors"), &data).unwrap();
}

/// `testdata` of the workspace.
pub fn testdata() -> PathBuf {
    workspace().join("testdata")
}

/// The bundled demo model.
pub fn demo() -> PathBuf {
    workspace().join("models/demo")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Interop data beside the workspace, which users do not have; says so loudly when missing.
pub fn shared(what: &str) -> Option<PathBuf> {
    let root =
        std::env::var_os("PAGELLA_SHARED").map_or(workspace().join("../shared"), PathBuf::from);
    let path = root.join(what);
    if path.exists() {
        return Some(path);
    }
    println!("SKIPPED: {what} (shared data not found)");
    None
}

/// Loads a directory with default options.
pub fn load<B: Backend>(
    dir: &Path,
    backend: B,
    step_tokens_max: usize,
) -> Result<Model<B>, ModelError> {
    let spec = load_spec(dir, &SpecOptions::default()).unwrap();
    load_with(dir, spec, backend, step_tokens_max)
}

/// Loads a directory with a given spec.
pub fn load_with<B: Backend>(
    dir: &Path,
    spec: ModelSpec,
    backend: B,
    step_tokens_max: usize,
) -> Result<Model<B>, ModelError> {
    let options = LoadOptions { step_tokens_max, ..LoadOptions::default() };
    Model::load(dir, spec, backend, &options, &mut |_| ControlFlow::Continue(()))
}

/// Logits of every id, fed in chunks of at most `chunk` through pages `0..` of a cache that rounds
/// nothing.
pub fn all_logits<B: Backend>(model: &mut Model<B>, ids: &[u32], chunk: usize) -> Vec<f32> {
    all_logits_in(KvFormat::F32, model, ids, chunk)
}

/// [`all_logits`] with a cache of any format.
pub fn all_logits_in<B: Backend>(
    format: KvFormat,
    model: &mut Model<B>,
    ids: &[u32],
    chunk: usize,
) -> Vec<f32> {
    let pages: Vec<u32> = (0..ids.len().div_ceil(PAGE_TOKENS) as u32).collect();
    let mut kv = model.new_kv(format, ids.len()).unwrap();
    let (mut logits, mut part) = (Vec::new(), Vec::new());
    for (i, ids) in ids.chunks(chunk).enumerate() {
        let row = StepRow::new(ids, i * chunk, &pages, LogitUse::last(ids.len()));
        model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap();
        model.read_logits(&mut part).unwrap();
        logits.extend_from_slice(&part);
    }
    logits
}

/// Index of the largest value, the first of equals.
pub fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (i, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = i;
        }
    }
    best as u32
}
