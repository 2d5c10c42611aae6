//! Every family case must give the logits that transformers computes in float32.

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../../testdata/families/recipe.rs"]
pub mod recipe;

use std::path::Path;

use pagella_arch::{ModelSpec, SpecOptions, families, load_spec};
use pagella_backend::{Backend, BackendError, KvFormat};
use pagella_cpu::MathMode;
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_formats::Checkpoint;
use pagella_model::{Model, ModelError};
use serde_json::{Map, Value};

use crate::cpu::cpu;
use crate::directory::{Tensor, all_logits_in, load_with, testdata, write_model};
use crate::reference::ReferenceBackend;

/// Largest difference allowed in any logit where nothing is rounded to 16 bits.
const LOGIT_DIFF_MAX: f32 = 1e-3;

/// The rule for every device: no further from float32 than half as far again as transformers' own
/// float16 run, and this much on top.
const RULE: (f32, f32) = (1.5, 1e-4);

/// A model that transformers has run.
pub struct Case {
    pub name: String,
    pub spec: ModelSpec,
    pub tensors: Vec<Tensor>,
    pub config: String,
    pub input_ids: Vec<u32>,
    /// Positions whose logits are stored.
    rows: Vec<usize>,
    /// Shape `[rows, vocab]`.
    logits: Vec<f32>,
    /// Largest difference of transformers' float16 run from them.
    f16_distance: f32,
}

/// Every case, in order of name.
pub fn cases() -> Vec<Case> {
    let entries = std::fs::read_dir(testdata().join("families")).unwrap();
    let mut dirs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    dirs.retain(|dir| dir.join("expected.safetensors").exists());
    dirs.sort();
    dirs.iter().map(|dir| read_case(dir)).collect()
}

/// The case of that name.
pub fn case(name: &str) -> Case {
    read_case(&testdata().join("families").join(name))
}

fn read_case(dir: &Path) -> Case {
    let expected = dir.join("expected.safetensors");
    let bytes = std::fs::read(&expected).unwrap();
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
    let metadata = |key: &str| header["__metadata__"][key].as_str().unwrap().to_owned();
    let context = metadata("context").parse().unwrap();
    let options = SpecOptions { context: Some(context), ..SpecOptions::default() };
    let shapes: Map<String, Value> = serde_json::from_str(&metadata("tensors")).unwrap();
    let centre: f32 = metadata("norm_centre").parse().unwrap();
    let stored = Checkpoint::open_file(&expected).unwrap();
    let integers = |name: &str| stored.require(name).unwrap().to_i64_vec().unwrap();
    Case {
        name: dir.file_name().unwrap().to_string_lossy().into_owned(),
        spec: load_spec(dir, &options).unwrap(),
        config: std::fs::read_to_string(dir.join("config.json")).unwrap(),
        tensors: shapes.iter().map(|(name, shape)| tensor(name, shape, centre)).collect(),
        input_ids: integers("input_ids").into_iter().map(|id| id as u32).collect(),
        rows: integers("rows").into_iter().map(|row| row as usize).collect(),
        logits: stored.require("logits").unwrap().to_f32().unwrap(),
        f16_distance: metadata("f16_distance").parse().unwrap(),
    }
}

fn tensor(name: &str, shape: &Value, norm_centre: f32) -> Tensor {
    let shape: Vec<usize> =
        shape.as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap() as usize).collect();
    let kind = recipe::Kind::of(name, *shape.last().unwrap(), norm_centre);
    Tensor::f32(name, &shape, &recipe::values(name, shape.iter().product(), kind))
}

impl Case {
    /// Writes the case as a model directory.
    pub fn write(&self, dir: &Path) {
        write_model(dir, &self.config, &self.tensors);
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.iter().find(|tensor| tensor.name == name).unwrap()
    }

    /// Puts a tensor in the place of the one of its name.
    pub fn replace(&mut self, new: Tensor) {
        let old = self.tensors.iter_mut().find(|tensor| tensor.name == new.name);
        *old.unwrap() = new;
    }

    /// Logits of all ids.
    pub fn run<B: Backend>(&self, backend: B) -> Vec<f32> {
        self.try_run(backend, KvFormat::F32).unwrap()
    }

    /// The model, for steps of 64 tokens.
    pub fn load<B: Backend>(&self, backend: B) -> Result<Model<B>, ModelError> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        load_with(dir.path(), self.spec.clone(), backend, 64)
    }

    /// [`Case::run`] on a backend that may not have what the model needs.
    fn try_run<B: Backend>(&self, backend: B, format: KvFormat) -> Result<Vec<f32>, ModelError> {
        let mut model = self.load(backend)?;
        Ok(all_logits_in(format, &mut model, &self.input_ids, 64))
    }

    /// Largest difference from the stored logits.
    pub fn difference(&self, logits: &[f32]) -> f32 {
        self.row_differences(logits).into_iter().map(|(_, worst)| worst).fold(0.0, worse)
    }

    /// Positions, and the largest difference from the stored logits there.
    fn row_differences(&self, logits: &[f32]) -> Vec<(usize, f32)> {
        let vocab = self.spec.vocab;
        let rows = self.rows.iter().zip(self.logits.chunks_exact(vocab));
        rows.map(|(&row, want)| {
            let pairs = logits[row * vocab..(row + 1) * vocab].iter().zip(want);
            (row, pairs.map(|(got, want)| (got - want).abs()).fold(0.0, worse))
        })
        .collect()
    }
}

/// Not `f32::max`, which would drop a NaN.
fn worse(worst: f32, next: f32) -> f32 {
    if next <= worst { worst } else { next }
}

/// Checks every case on one backend; `limit` is what it may differ by besides the rule. Cases that
/// the backend refuses are named.
fn compare_with_transformers<B: Backend>(
    backend: impl Fn() -> B,
    format: KvFormat,
    limit: f32,
) -> Vec<String> {
    let cases = cases();
    assert!(cases.len() >= 130, "only {} cases found", cases.len());
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for case in &cases {
        let logits = match case.try_run(backend(), format) {
            Err(ModelError::Backend(error @ BackendError::Unsupported { .. })) => {
                refused.push(format!("{}: {error}", case.name));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{}: {error}", case.name));
                continue;
            }
            Ok(logits) => logits,
        };
        let difference = case.difference(&logits);
        let limit = limit.min(RULE.0 * case.f16_distance + RULE.1);
        println!("{:30} {difference:.2e} of {limit:.2e}", case.name);
        if difference.is_nan() || difference > limit {
            let rows = case.row_differences(&logits);
            wrong.push(format!("{} ({difference:.2e} of {limit:.2e}): {rows:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "logits differ from transformers:\n{}", wrong.join("\n"));
    refused
}

#[test]
fn every_family_has_three_cases_and_every_case_a_family() {
    let cases = cases();
    for family in families() {
        let n = cases.iter().filter(|case| case.spec.family == family.name).count();
        assert!(n >= 3, "{} has {n} cases", family.name);
    }
}

#[test]
fn a_window_that_is_off_by_one_would_be_noticed() {
    let mut n_windowed = 0;
    for mut case in cases() {
        let layers = case.spec.layers.iter_mut();
        let windows =
            layers.filter_map(|layer| layer.attn.window.as_mut().or(layer.attn.chunk.as_mut()));
        if windows.map(|window| *window += 1).count() > 0 {
            n_windowed += 1;
            let difference = case.difference(&case.run(cpu(MathMode::Exact, 2)));
            assert!(difference > 10.0 * LOGIT_DIFF_MAX, "{}: {difference:.2e}", case.name);
        }
    }
    assert!(n_windowed >= 25, "only {n_windowed} cases have windows");
}

/// Whether the device is to be used: set `PAGELLA_TEST_DEVICE=cuda` on a machine that has one. Says
/// what is skipped otherwise.
pub fn on_cuda(what: &str) -> bool {
    let asked = std::env::var("PAGELLA_TEST_DEVICE").is_ok_and(|device| device == "cuda");
    if !asked {
        println!("SKIPPED: {what} on CUDA (PAGELLA_TEST_DEVICE is not cuda)");
    }
    asked
}

#[test]
fn every_family_gives_the_logits_of_transformers_on_cuda() {
    if !on_cuda("the families") {
        return;
    }
    let device = || CudaBackend::new(CudaOptions::default()).unwrap();
    let refused = compare_with_transformers(device, KvFormat::F16, f32::INFINITY);
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn what_cuda_lacks_is_refused_by_name_before_weights_are_read() {
    if !on_cuda("refusals") {
        return;
    }
    let mut spec = case("gptoss-window-yarn").spec;
    spec.layers.iter_mut().for_each(|layer| layer.attn.head_dim = 256);
    // There are no weights: whoever looks for them says so.
    let dir = tempfile::tempdir().unwrap();
    let refused = |error: ModelError| error.to_string();
    let device = CudaBackend::new(CudaOptions::default()).unwrap();
    let on_cuda = load_with(dir.path(), spec.clone(), device, 64).map(|_| ()).unwrap_err();
    let on_cpu = load_with(dir.path(), spec, cpu(MathMode::Exact, 1), 64).map(|_| ()).unwrap_err();
    assert!(matches!(on_cuda, ModelError::Backend(BackendError::Unsupported { .. })), "{on_cuda}");
    assert!(refused(on_cuda).contains("attention sinks"));
    assert!(!refused(on_cpu).contains("attention sinks"));
}

#[test]
fn every_family_gives_the_logits_of_transformers_on_the_cpu() {
    let refused =
        compare_with_transformers(|| cpu(MathMode::Exact, 2), KvFormat::F32, LOGIT_DIFF_MAX);
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_family_gives_the_logits_of_transformers_on_the_reference_backend() {
    let refused = compare_with_transformers(|| ReferenceBackend, KvFormat::F32, LOGIT_DIFF_MAX);
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
