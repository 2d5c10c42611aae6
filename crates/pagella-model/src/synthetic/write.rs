//! A synthetic model as files, to measure how fast models are read.
//!
//! One file per layer, written by all cores at once. Equal shapes share their random words, so what
//! is in memory is one layer, the embedding and the head, whatever the depth. There is no tokenizer:
//! such a model has nothing to say.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use half::f16;
use pagella_arch::{BiasRule, LayerSpec, LinearSpec, ModelSpec, NormSpec};
use pagella_formats::safetensors::write::{TensorData, write_scratch_file};
use pagella_formats::{Dtype, FormatError, OwnedLinear, synthetic as random};
use serde_json::{Value, json};

use super::{GPTQ_GROUP_ROWS, SyntheticWeights, preset};
use crate::error::ModelError;
use crate::weights::LinearUse;

/// A linear by what decides its bytes: use, inputs, outputs.
type Shape = (LinearUse, usize, usize);

/// What one file holds.
enum Shard<'s> {
    Embedding,
    Layer(&'s LayerSpec),
    /// Final norm and head.
    End,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenModel {
    /// Files of weights.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes a model of a named shape with random weights to `dir`, which must be empty or absent.
pub fn write_preset(
    name: &str,
    weights: SyntheticWeights,
    dir: &Path,
) -> Result<WrittenModel, ModelError> {
    write(&preset::preset_spec(name)?, preset::preset_config(name)?, weights, dir)
}

/// Writes a model of the spec that `config` gives.
fn write(
    spec: &ModelSpec,
    config: &str,
    weights: SyntheticWeights,
    dir: &Path,
) -> Result<WrittenModel, ModelError> {
    super::check_shapes(spec, weights)?;
    make_empty_dir(dir)?;
    let path = dir.join("config.json");
    fs::write(&path, with_quantization(config, weights))
        .map_err(|source| FormatError::Io { path, source })?;
    let layers = spec.layers.iter().map(Shard::Layer);
    // The two largest first, so that no core is left with one of them at the end.
    let shards: Vec<Shard<'_>> = [Shard::Embedding, Shard::End].into_iter().chain(layers).collect();
    let writer = Writer { spec, weights, made: make_shapes(spec, weights)?, dir };
    let bytes = on_all_cores(shards.len(), |at| writer.write(&shards[at], at, shards.len()))?;
    Ok(WrittenModel { files: shards.len(), bytes: bytes.into_iter().sum() })
}

fn make_empty_dir(dir: &Path) -> Result<(), ModelError> {
    let failed = |source| FormatError::Io { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    if fs::read_dir(dir).map_err(failed)?.next().is_some() {
        return Err(ModelError::NotEmpty { dir: dir.to_owned() });
    }
    Ok(())
}

/// The config with what the weight format adds to it.
fn with_quantization(config: &str, weights: SyntheticWeights) -> String {
    let quantization = match weights {
        SyntheticWeights::Exl2 { bits, head_bits } => {
            json!({ "quant_method": "exl2", "bits": bits, "head_bits": head_bits })
        }
        SyntheticWeights::Exl3 { bits, head_bits } => {
            json!({ "quant_method": "exl3", "bits": bits, "head_bits": head_bits })
        }
        SyntheticWeights::Gptq => json!({
            "quant_method": "gptq", "bits": 4, "group_size": GPTQ_GROUP_ROWS, "desc_act": false,
        }),
        SyntheticWeights::F16 => return config.to_owned(),
    };
    match serde_json::from_str(config) {
        Ok(Value::Object(mut config)) => {
            config.insert("quantization_config".to_owned(), quantization);
            format!("{:#}\n", Value::Object(config))
        }
        _ => config.to_owned(), // Presets are objects, or there would be no spec.
    }
}

/// All distinct linears of the layers.
fn make_shapes(
    spec: &ModelSpec,
    weights: SyntheticWeights,
) -> Result<HashMap<Shape, OwnedLinear>, ModelError> {
    let linears = spec.layers.iter().flat_map(LayerSpec::linear_specs);
    let mut shapes: Vec<Shape> = linears.map(|(label, linear)| shape(&label, linear)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let made = on_all_cores(shapes.len(), |at| make(shapes[at], weights))?;
    Ok(shapes.into_iter().zip(made).collect())
}

fn shape(label: &str, linear: &LinearSpec) -> Shape {
    (LinearUse::of(label), linear.in_features, linear.out_features)
}

fn make(
    (usage, inputs, outputs): Shape,
    weights: SyntheticWeights,
) -> Result<OwnedLinear, ModelError> {
    Ok(weights.format_of(usage)?.make(inputs, outputs))
}

/// Calls `run` for `0..n` on all cores; results in order, or the first error.
fn on_all_cores<T: Send>(
    n: usize,
    run: impl Fn(usize) -> Result<T, ModelError> + Sync,
) -> Result<Vec<T>, ModelError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= n {
                return Ok(done);
            }
            match run(at) {
                Ok(result) => done.push((at, result)),
                Err(error) => {
                    // Nobody starts anything any more.
                    next.store(n, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let done: Result<Vec<_>, ModelError> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(n)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    let mut done: Vec<(usize, T)> = done?.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Writes shards.
struct Writer<'s> {
    spec: &'s ModelSpec,
    weights: SyntheticWeights,
    /// Linears of the layers.
    made: HashMap<Shape, OwnedLinear>,
    dir: &'s Path,
}

impl Writer<'_> {
    /// Writes one shard; its bytes.
    fn write(&self, shard: &Shard<'_>, at: usize, of: usize) -> Result<u64, ModelError> {
        let path = self.dir.join(format!("model-{:05}-of-{of:05}.safetensors", at + 1));
        match shard {
            Shard::Embedding => {
                let ModelSpec { embed, vocab, hidden, context, .. } = self.spec;
                let table = random::plain_f16(*hidden, *vocab, *vocab as u64);
                let positions = embed
                    .positions
                    .as_ref()
                    .map(|base| (base, random::plain_f16(*hidden, *context, *context as u64)));
                let mut tensors = table.named(&embed.name);
                if let Some((base, table)) = &positions {
                    tensors.extend(table.named(base));
                }
                save(path, &tensors)
            }
            Shard::Layer(layer) => {
                let linears = layer.linear_specs();
                let found = linears.iter().filter_map(|(label, linear)| {
                    Some((*linear, self.made.get(&shape(label, linear))?))
                });
                let norms = layer.norm_specs().into_iter().map(|(_, norm)| norm);
                self.save_linears(path, found, norms)
            }
            Shard::End => {
                let head = &self.spec.head.linear;
                let made = make(shape("head", head), self.weights)?;
                self.save_linears(
                    path,
                    [(head, &made)].into_iter(),
                    [&self.spec.final_norm].into_iter(),
                )
            }
        }
    }

    fn save_linears<'a>(
        &self,
        path: PathBuf,
        linears: impl Iterator<Item = (&'a LinearSpec, &'a OwnedLinear)>,
        norms: impl Iterator<Item = &'a NormSpec>,
    ) -> Result<u64, ModelError> {
        let mut small: Vec<(String, Vec<u8>)> = Vec::new();
        let mut tensors = Vec::new();
        for (linear, made) in linears {
            let Some(base) = linear.bases.first() else {
                return Err(ModelError::SyntheticShape {
                    format: "a file",
                    in_features: linear.in_features,
                    out_features: linear.out_features,
                    reason: "its family stores it only inside another linear",
                });
            };
            tensors.extend(made.named(base));
            if linear.bias == BiasRule::Required {
                small.push((format!("{base}.bias"), vec![0; 2 * linear.out_features]));
            }
        }
        for norm in norms {
            if let Some(base) = norm.bases.first() {
                let one = f16::from_f32(1.0 - norm.offset).to_le_bytes();
                small.push((format!("{base}.weight"), one.repeat(norm.width)));
            }
        }
        tensors.extend(small.iter().map(|(name, data)| TensorData {
            name: name.clone(),
            dtype: Dtype::F16,
            shape: vec![data.len() / 2],
            data,
        }));
        save(path, &tensors)
    }
}

fn save(path: PathBuf, tensors: &[TensorData<'_>]) -> Result<u64, ModelError> {
    write_scratch_file(&path, tensors)?;
    let metadata = fs::metadata(&path);
    Ok(metadata.map_err(|source| FormatError::Io { path, source })?.len())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use pagella_arch::{SpecOptions, load_spec, spec_from_json};
    use pagella_cpu::{CpuBackend, CpuOptions};
    use pagella_formats::LinearKind;

    use super::*;
    use crate::{LoadOptions, Model, Survey};

    const QWEN2: &str = r#"{
        "architectures": ["Qwen2ForCausalLM"], "vocab_size": 96, "hidden_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "max_position_embeddings": 512, "tie_word_embeddings": true
    }"#;

    #[test]
    fn what_was_written_loads_and_runs() {
        let spec = spec_from_json(QWEN2.as_bytes(), None, &SpecOptions::default()).unwrap();
        let exl2 = SyntheticWeights::Exl2 { bits: 4.0, head_bits: 6 };
        for (weights, kind) in [
            (exl2, LinearKind::Exl2),
            (SyntheticWeights::Exl3 { bits: 3, head_bits: 6 }, LinearKind::Exl3),
            (SyntheticWeights::Gptq, LinearKind::Gptq),
            (SyntheticWeights::F16, LinearKind::Plain),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let written = write(&spec, QWEN2, weights, dir.path()).unwrap();
            let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata());
            let bytes: u64 = files.map(|metadata| metadata.unwrap().len()).sum();
            let config = fs::metadata(dir.path().join("config.json")).unwrap().len();
            assert_eq!(written, WrittenModel { files: 5, bytes: bytes - config });
            let spec = load_spec(dir.path(), &SpecOptions::default()).unwrap();
            let survey = Survey::of(dir.path(), &spec).unwrap();
            assert_eq!(survey.linears[0].kind, kind);
            assert!(survey.linears[0].bias_bytes > 0);
            let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
            let options = LoadOptions::default();
            let go_on = &mut |_: &crate::LoadProgress<'_>| ControlFlow::Continue(());
            Model::load(dir.path(), spec, cpu, &options, go_on).unwrap();
        }
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "x").unwrap();
        let error = write_preset("anchor-1b", SyntheticWeights::F16, dir.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_first_error_ends_all_cores() {
        let failed = on_all_cores(1000, |at| match at {
            7 => Err(ModelError::Cancelled),
            _ => Ok(at),
        });
        assert!(matches!(failed, Err(ModelError::Cancelled)));
        let all = on_all_cores(1000, Ok).unwrap();
        assert!(all.iter().copied().eq(0..1000));
    }
}
