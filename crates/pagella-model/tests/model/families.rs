//! Every family case must give the logits that transformers computes in float32.

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../../testdata/families/recipe.rs"]
mod recipe;

use std::path::Path;

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use pagella_backend::Backend;
use pagella_formats::Checkpoint;
use serde_json::{Map, Value};

use crate::directory::{Tensor, all_logits, load_with, testdata, write_model};
use crate::reference::ReferenceBackend;

/// Largest difference allowed in any logit.
const LOGIT_DIFF_MAX: f32 = 1e-3;

/// A model that transformers has run.
pub struct Case {
    pub name: String,
    pub spec: ModelSpec,
    pub tensors: Vec<Tensor>,
    config: String,
    input_ids: Vec<u32>,
    /// Positions whose logits are stored.
    rows: Vec<usize>,
    /// Shape `[rows, vocab]`.
    logits: Vec<f32>,
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

    /// Logits of all ids.
    pub fn run<B: Backend>(&self, backend: B) -> Vec<f32> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        let mut model = load_with(dir.path(), self.spec.clone(), backend, 64).unwrap();
        all_logits(&mut model, &self.input_ids, 64)
    }

    /// Largest difference from the stored logits.
    pub fn difference<B: Backend>(&self, backend: B) -> f32 {
        let logits = self.run(backend);
        let vocab = self.spec.vocab;
        let pairs = self
            .rows
            .iter()
            .zip(self.logits.chunks_exact(vocab))
            .flat_map(|(row, want)| logits[row * vocab..(row + 1) * vocab].iter().zip(want));
        // Not `f32::max`, which would drop a NaN.
        let worse = |worst: f32, next: f32| if next <= worst { worst } else { next };
        pairs.map(|(got, want)| (got - want).abs()).fold(0.0, worse)
    }
}

#[test]
fn every_family_gives_the_logits_of_transformers() {
    let cases = cases();
    assert!(cases.len() >= 18, "only {} cases found", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let difference = case.difference(ReferenceBackend::EXACT);
        println!("{:30} {difference:.2e}", case.name);
        if difference.is_nan() || difference > LOGIT_DIFF_MAX {
            wrong.push(format!("{} ({difference:.2e})", case.name));
        }
    }
    assert!(wrong.is_empty(), "logits differ from transformers: {}", wrong.join(", "));
}
