//! Tiny unquantised models, made from the recipes of `testdata/families`, and jobs on them.

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../../testdata/families/recipe.rs"]
mod recipe;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pagella_arch::SpecOptions;
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::{Dtype, OwnedLinear};
use pagella_quant::calibration::CalibrationOptions;
use pagella_quant::{JobProgress, Outcome, QuantError, QuantizeOptions, quantize};
use serde_json::{Map, Value};

/// The linear of a name and `[out, in]`, where it is stored otherwise than in F32.
pub type Store<'a> = &'a dyn Fn(&str, [usize; 2]) -> Option<OwnedLinear>;

/// Writes a family case as an unquantised model.
pub fn write_source(case: &str, dir: &Path) {
    write(case, dir, None, &|_, _| None);
}

/// The same with another vocabulary.
pub fn write_source_of_vocab(case: &str, dir: &Path, vocab: Option<usize>) {
    write(case, dir, vocab, &|_, _| None);
}

/// The same with linears, by name and `[out, in]`, that `store` has otherwise.
pub fn write_stored(case: &str, dir: &Path, store: Store<'_>) {
    write(case, dir, None, store);
}

fn write(case: &str, dir: &Path, vocab: Option<usize>, store: Store<'_>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families").join(case);
    std::fs::create_dir_all(dir).unwrap();
    let config = std::fs::read_to_string(root.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let before = config["vocab_size"].as_u64();
    if let Some(vocab) = vocab {
        config["vocab_size"] = vocab.into();
    }
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let bytes = std::fs::read(root.join("expected.safetensors")).unwrap();
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
    let metadata = |key: &str| header["__metadata__"][key].as_str().unwrap().to_owned();
    let shapes: Map<String, Value> = serde_json::from_str(&metadata("tensors")).unwrap();
    let centre: f32 = metadata("norm_centre").parse().unwrap();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
        .iter()
        .map(|(name, shape)| {
            let extents = shape.as_array().unwrap().iter();
            let mut shape: Vec<usize> = extents.map(|e| e.as_u64().unwrap() as usize).collect();
            let is_table = name.contains("embed_tokens") || name.contains("lm_head");
            if let Some(vocab) = vocab.filter(|_| is_table && Some(shape[0] as u64) == before) {
                shape[0] = vocab;
            }
            let kind = recipe::Kind::of(name, *shape.last().unwrap(), centre);
            let values = recipe::values(name, shape.iter().product(), kind);
            (name.clone(), shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        })
        .collect();
    let stored: Vec<(&str, Option<OwnedLinear>)> = tensors
        .iter()
        .map(|(name, shape, _)| {
            let base = name.strip_suffix(".weight").unwrap_or(name);
            let linear = <[usize; 2]>::try_from(&shape[..]).ok();
            (base, linear.and_then(|shape| store(base, shape)))
        })
        .collect();
    let views: Vec<TensorData<'_>> = tensors
        .iter()
        .zip(&stored)
        .flat_map(|((name, shape, data), (base, stored))| match stored {
            Some(linear) => linear.named(base),
            None => {
                let (name, shape) = (name.clone(), shape.clone());
                vec![TensorData { name, dtype: Dtype::F32, shape, data }]
            }
        })
        .collect();
    write_file(&dir.join("model.safetensors"), &views).unwrap();
}

/// Sets all bytes of the tensors whose names contain `part`: 0 makes them zero, 255 no number.
pub fn fill(dir: &Path, part: &str, byte: u8) {
    let path = dir.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
    for (_, tensor) in header.iter().filter(|(name, _)| name.contains(part)) {
        let [begin, end] = [0, 1].map(|i| tensor["data_offsets"][i].as_u64().unwrap() as usize);
        bytes[8 + header_bytes + begin..8 + header_bytes + end].fill(byte);
    }
    std::fs::write(path, bytes).unwrap();
}

/// A small job.
pub fn options(source: &Path, target: &Path, rates: &[f64]) -> QuantizeOptions {
    QuantizeOptions {
        source: source.to_owned(),
        target: target.to_owned(),
        rates: rates.to_vec(),
        head_bits: None,
        measurement: None,
        output_measurement: None,
        shard_bytes: 1 << 30,
        calibration: CalibrationOptions {
            file: None,
            rows: Some(4),
            length: 32,
            seed: 1,
            low_memory: false,
        },
        spec: SpecOptions::default(),
        resume: true,
        threads: Some(2),
    }
}

pub fn cpu(threads: usize) -> CpuBackend {
    let options = CpuOptions { threads: Some(threads), pin: false, ..CpuOptions::default() };
    CpuBackend::new(options).unwrap()
}

/// Does the job.
pub fn run(options: &QuantizeOptions) -> Result<Outcome, QuantError> {
    run_until(options, usize::MAX).1
}

/// Does the job and stops it at a report; gives how many there were.
pub fn run_until(
    options: &QuantizeOptions,
    stop_at: usize,
) -> (usize, Result<Outcome, QuantError>) {
    let mut reports = 0;
    let done = quantize(options, cpu(options.threads.unwrap()), &mut |_: &JobProgress| {
        reports += 1;
        if reports > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (reports, done)
}

/// All files below a folder with their bytes.
pub fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => {
                found.extend(files(&path).into_iter().map(|(name, bytes)| {
                    (PathBuf::from(path.file_name().unwrap()).join(name), bytes)
                }))
            }
            false => {
                found.insert(path.file_name().unwrap().into(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}
