//! Adapters: every case must give the logits of transformers with peft in float32; damaged ones and
//! those of other models are refused with one sentence; slots come and go without a trace.

use std::path::Path;

use pagella_backend::{AdapterUse, Backend, KvFormat, LogitUse, StepPlan, StepRow};
use pagella_cpu::{CpuBackend, MathMode};
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_formats::Checkpoint;
use pagella_formats::safetensors::write::{TensorData, write_scratch_file};
use pagella_model::{BoundAdapter, Model, ModelError};
use serde_json::{Map, Value};

use crate::cpu::cpu;
use crate::directory::{Tensor, load_with, testdata};
use crate::families::{self, recipe};
use crate::reference::ReferenceBackend;

/// Largest RMS difference of log-probabilities.
const RMS_MAX: f64 = 1e-3;

/// An adapter that transformers has run.
struct Case {
    name: String,
    family: families::Case,
    config: String,
    tensors: Vec<Tensor>,
    input_ids: Vec<u32>,
    rows: Vec<usize>,
    /// Shape `[rows, vocab]`.
    logits: Vec<f32>,
}

impl Case {
    fn read(name: &str) -> Self {
        let dir = testdata().join("adapters").join(name);
        let expected = dir.join("expected.safetensors");
        let bytes = std::fs::read(&expected).unwrap();
        let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
        let metadata = |key: &str| header["__metadata__"][key].as_str().unwrap().to_owned();
        let shapes: Map<String, Value> = serde_json::from_str(&metadata("tensors")).unwrap();
        let stored = Checkpoint::open_file(&expected).unwrap();
        let integers = |name: &str| stored.require(name).unwrap().to_i64_vec().unwrap();
        Self {
            name: name.to_owned(),
            family: families::case(&metadata("family_case")),
            config: std::fs::read_to_string(dir.join("adapter_config.json")).unwrap(),
            tensors: shapes.iter().map(|(name, shape)| tensor(name, shape)).collect(),
            input_ids: integers("input_ids").into_iter().map(|id| id as u32).collect(),
            rows: integers("rows").into_iter().map(|row| row as usize).collect(),
            logits: stored.require("logits").unwrap().to_f32().unwrap(),
        }
    }

    /// Every case, in order of name.
    fn all() -> Vec<Self> {
        let entries = std::fs::read_dir(testdata().join("adapters")).unwrap();
        let dirs = entries.map(|entry| entry.unwrap().path());
        let mut dirs: Vec<_> =
            dirs.filter(|dir| dir.join("expected.safetensors").exists()).collect();
        dirs.sort();
        dirs.iter().map(|dir| Self::read(&dir.file_name().unwrap().to_string_lossy())).collect()
    }

    fn model(&self) -> Model<CpuBackend> {
        self.model_on(cpu(MathMode::Exact, 2))
    }

    fn model_on<B: Backend>(&self, backend: B) -> Model<B> {
        let dir = tempfile::tempdir().unwrap();
        self.family.write(dir.path());
        load_with(dir.path(), self.family.spec.clone(), backend, 64).unwrap()
    }

    fn bind(&self) -> Result<BoundAdapter, ModelError> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        BoundAdapter::open(dir.path(), &self.family.spec)
    }

    fn write(&self, dir: &Path) {
        std::fs::write(dir.join("adapter_config.json"), &self.config).unwrap();
        let data: Vec<TensorData<'_>> = self
            .tensors
            .iter()
            .map(|tensor| TensorData {
                name: tensor.name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                data: &tensor.data,
            })
            .collect();
        write_scratch_file(&dir.join("adapter_model.safetensors"), &data).unwrap();
    }

    /// RMS difference of log-probabilities from the stored ones.
    fn difference(&self, logits: &[f32]) -> f64 {
        let vocab = self.family.spec.vocab;
        let (mut sum, mut n) = (0.0, 0);
        for (&row, want) in self.rows.iter().zip(self.logits.chunks_exact(vocab)) {
            let got = log_probabilities(&logits[row * vocab..(row + 1) * vocab]);
            for (got, want) in got.iter().zip(log_probabilities(want)) {
                sum += (got - want) * (got - want);
                n += 1;
            }
        }
        (sum / f64::from(n)).sqrt()
    }
}

fn tensor(name: &str, shape: &Value) -> Tensor {
    let extents = shape.as_array().unwrap().iter();
    let shape: Vec<usize> = extents.map(|extent| extent.as_u64().unwrap() as usize).collect();
    let kind = recipe::Kind::of(name, *shape.last().unwrap(), 1.0);
    Tensor::f32(name, &shape, &recipe::values(name, shape.iter().product(), kind))
}

fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let exp = |logit: &f32| f64::from(logit - largest).exp();
    let sum = logits.iter().map(exp).sum::<f64>().ln();
    logits.iter().map(|logit| f64::from(logit - largest) - sum).collect()
}

fn used(slot: u32, scale: f32) -> AdapterUse {
    AdapterUse { slot, scale }
}

/// Logits of rows that run together, one after the other: every one its ids and its adapters.
fn logits<B: Backend>(model: &mut Model<B>, rows: &[(&[u32], Vec<AdapterUse>)]) -> Vec<f32> {
    // Tensor cores read keys and values as 16-bit numbers.
    let on_cuda = model.backend().name() == "cuda";
    let format = if on_cuda { KvFormat::F16 } else { KvFormat::F32 };
    let mut kv = model.new_kv(format, 256 * rows.len()).unwrap();
    let pages: Vec<[u32; 1]> = (0..rows.len() as u32).map(|page| [page]).collect();
    let rows = rows.iter().zip(&pages).map(|((ids, adapters), pages)| {
        let row = StepRow::new(ids, 0, pages, LogitUse::last(ids.len()));
        StepRow { adapters, ..row }
    });
    model.forward(&StepPlan::new(&rows.collect::<Vec<_>>()).unwrap(), &mut kv).unwrap();
    let mut logits = Vec::new();
    model.read_logits(&mut logits).unwrap();
    logits
}

#[test]
fn every_adapter_gives_the_log_probabilities_of_transformers_with_peft() {
    let cases = Case::all();
    assert!(cases.len() >= 20, "only {} cases found", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let (mut model, ids) = (case.model(), &case.input_ids[..]);
        model.add_adapter(3, &case.bind().unwrap()).unwrap();
        let difference = case.difference(&logits(&mut model, &[(ids, vec![used(3, 1.0)])]));
        let without = case.difference(&logits(&mut model, &[(ids, vec![])]));
        println!("{:24} {difference:.2e}, without it {without:.2e}", case.name);
        if difference.is_nan() || difference > RMS_MAX || without < 100.0 * RMS_MAX {
            wrong.push(format!("{}: {difference:.2e}, without it {without:.2e}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_with_and_without_adapters_share_a_step_bit_for_bit() {
    for name in ["llama-saved", "mixtral-experts", "cohere-parallel", "gemma2-all"] {
        let case = Case::read(name);
        let (mut model, bound) = (case.model(), case.bind().unwrap());
        for slot in [0, 9] {
            model.add_adapter(slot, &bound).unwrap();
        }
        let ids = &case.input_ids;
        let rows = [
            (&ids[..7], vec![]),
            (&ids[..9], vec![used(0, 1.0)]),
            (&ids[3..4], vec![used(9, -0.5)]),
            (&ids[10..30], vec![used(9, 0.75)]),
            (&ids[5..6], vec![]),
            (&ids[..6], vec![used(0, 1.0)]),
        ];
        let together = logits(&mut model, &rows);
        let mut alone = Vec::new();
        for row in &rows {
            alone.extend(logits(&mut model, std::slice::from_ref(row)));
        }
        assert!(together == alone, "{name}");
        // The second slot holds the same adapter.
        let [first, second] =
            [0, 9].map(|slot| logits(&mut model, &[(&ids[..9], vec![used(slot, 1.0)])]));
        assert!(first == second, "{name}");
    }
}

#[test]
fn loading_can_end_at_every_part_and_leaves_nothing() {
    let case = Case::read("llama-saved");
    let (mut model, bound) = (case.model(), case.bind().unwrap());
    let plain = logits(&mut model, &[(&case.input_ids, vec![])]);
    let other = case.bind().unwrap();
    model.add_adapter(1, &other).unwrap();
    let (bytes, row) = (model.adapter_bytes(), vec![used(1, 1.0)]);
    let adapted = logits(&mut model, &[(&case.input_ids, row.clone())]);
    assert!(adapted != plain && bytes >= bound.bytes());
    for n in 0..bound.parts().len() {
        bound.parts()[..n].iter().for_each(|part| model.fill_adapter(0, part).unwrap());
        model.remove_adapter(0).unwrap();
        assert_eq!(model.adapter_bytes(), bytes, "after {n} parts");
    }
    assert!(logits(&mut model, &[(&case.input_ids, row)]) == adapted);
    for _ in 0..50 {
        model.add_adapter(7, &bound).unwrap();
        model.remove_adapter(7).unwrap();
    }
    model.remove_adapter(1).unwrap();
    assert_eq!(model.adapter_bytes(), 0);
    assert!(logits(&mut model, &[(&case.input_ids, vec![])]) == plain);
}

#[test]
fn an_adapter_of_another_model_leaves_nothing() {
    // As many layers, the same parts, another width.
    let (case, other) = (Case::read("llama-all"), Case::read("qwen2moe-shared"));
    let mut model = other.model();
    let error = model.add_adapter(0, &case.bind().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("inputs of an adapter's part has size"), "{error}");
    assert_eq!(model.adapter_bytes(), 0);
    let error = model.add_adapter(256, &other.bind().unwrap()).unwrap_err();
    assert_eq!(error.code(), "no_such_adapter");
}

#[test]
fn steps_with_a_slot_that_is_empty_are_refused() {
    let case = Case::read("llama-all");
    let mut model = case.model();
    model.add_adapter(2, &case.bind().unwrap()).unwrap();
    model.remove_adapter(2).unwrap();
    let mut kv = model.new_kv(KvFormat::F16, 256).unwrap();
    let adapters = [used(2, 1.0)];
    let row = StepRow { adapters: &adapters, ..StepRow::new(&[1], 0, &[0], LogitUse::Choice) };
    let error = model.forward(&StepPlan::new(&[row]).unwrap(), &mut kv).unwrap_err();
    assert_eq!(error.to_string(), "there is no adapter in slot 2: load it first");
}

#[test]
fn adapters_of_other_models_are_refused_with_one_sentence() {
    let refusal = |case: &Case| case.bind().unwrap_err().to_string();
    let change = |name: &str, change: &dyn Fn(&mut Case)| {
        let mut case = Case::read(name);
        change(&mut case);
        refusal(&case)
    };
    let q = "base_model.model.model.layers.0.self_attn.q_proj";
    let rename = |case: &mut Case, from: &str, to: &str| {
        for tensor in &mut case.tensors {
            tensor.name = tensor.name.replace(from, to);
        }
    };
    let resize = |case: &mut Case, name: &str, shape: [usize; 2]| {
        let found = case.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        *found = Tensor::filled(name, &shape, 0.5);
    };
    let messages = [
        (change("llama-all", &|c| rename(c, "layers.0.", "layers.99.")), "for another model"),
        (change("llama-all", &|c| rename(c, "layers.0.mlp", "layers.0.moe")), "for another model"),
        (change("llama-all", &|c| rename(c, "model.layers", "transformer.h")), "for another model"),
        (change("llama-all", &|c| resize(c, &format!("{q}.lora_A.weight"), [8, 64])), "[8, 96]"),
        (change("llama-all", &|c| resize(c, &format!("{q}.lora_B.weight"), [64, 8])), "[96, 8]"),
        (
            change("phi3-fused", &|c| {
                let name = "base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight";
                resize(c, name, [64, 8]);
            }),
            "is needed",
        ),
        (
            change("llama-saved", &|c| resize(c, "base_model.model.lm_head.weight", [8, 96])),
            "the vocabulary of the model",
        ),
        (
            change("llama-saved", &|c| {
                resize(c, "base_model.model.model.embed_tokens.weight", [8, 96]);
            }),
            "the vocabulary of the model",
        ),
        (
            change("llama-saved", &|c| rename(c, "lm_head.weight", "model.norm.weight")),
            "for another model",
        ),
        (
            change("llama-saved", &|c| {
                rename(c, "lm_head.weight", "model.layers.0.mlp.up_proj.weight");
            }),
            "as a whole weight",
        ),
        (
            change("llama-all", &|c| c.tensors.retain(|t| !t.name.contains("v_proj"))),
            "`v_proj`, which adapter_config.json lists",
        ),
        (
            change("llama-saved", &|c| c.tensors.retain(|t| !t.name.contains("lm_head"))),
            "`lm_head`, which adapter_config.json lists",
        ),
        (
            change("deepseekv2-latent", &|c| {
                c.config = c.config.replace("kv_a_proj_with_mqa", "kv_b_proj");
                rename(c, "kv_a_proj_with_mqa", "kv_b_proj");
            }),
            "adapters cannot change here",
        ),
    ];
    for (message, words) in messages {
        assert!(message.contains(words) && !message.contains('\n'), "{words}: {message}");
    }
}

#[test]
fn two_modules_for_one_linear_are_refused() {
    let mut case = Case::read("phi3-fused");
    case.bind().unwrap();
    // The rows of the queries are in the fused module already.
    let q = &case.family.spec.layers[0].attn.q;
    let shapes = [("lora_A", [8, q.in_features]), ("lora_B", [q.out_features, 8])];
    for (half, shape) in shapes {
        let name = format!("base_model.model.model.layers.0.self_attn.q_proj.{half}.weight");
        case.tensors.push(Tensor::filled(&name, &shape, 0.5));
    }
    case.config = case.config.replace("\"qkv_proj\"", "\"qkv_proj\", \"q_proj\"");
    let message = case.bind().unwrap_err().to_string();
    assert!(message.contains("layers.0.self_attn.qkv_proj`, which is a linear that"), "{message}");
    assert!(message.contains("layers.0.self_attn.q_proj\" changes as well"), "{message}");
}

#[test]
fn values_that_are_not_finite_are_refused_by_name() {
    let mut case = Case::read("phi3-fused");
    let tensor = case.tensors.last_mut().unwrap();
    tensor.data[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    let (name, message) = (tensor.name.clone(), case.bind().unwrap_err().to_string());
    assert!(message.contains("element 1") && message.contains(&name), "{message}");
}

#[test]
fn modules_for_images_are_left_out() {
    let mut case = Case::read("gemma3vl-prefixed");
    let parts = case.bind().unwrap().parts().len();
    let vision =
        "base_model.model.model.vision_tower.encoder.layers.0.self_attn.language_model.q_proj";
    for (half, shape) in [("lora_A", [6, 32]), ("lora_B", [32, 6])] {
        case.tensors.push(Tensor::filled(&format!("{vision}.{half}.weight"), &shape, 0.5));
    }
    let bound = case.bind().unwrap();
    assert_eq!((bound.parts().len(), bound.ignored_modules()), (parts, 1));
}

/// Where nothing is rounded to 16 bits the test above is exact; on a device a wrong product would be
/// about as far off as none.
#[test]
fn adapters_work_on_cuda_and_in_recorded_steps() {
    if !families::on_cuda("adapters") {
        return;
    }
    for name in
        ["llama-all", "phi3-fused", "gemma2-all", "cohere-parallel", "glm4-all", "gpt2-conv"]
    {
        let case = Case::read(name);
        let mut model = case.model_on(CudaBackend::new(CudaOptions::default()).unwrap());
        let bound = case.bind().unwrap();
        model.add_adapter(3, &bound).unwrap();
        let ids = &case.input_ids[..];
        let difference = case.difference(&logits(&mut model, &[(ids, vec![used(3, 1.0)])]));
        let without = case.difference(&logits(&mut model, &[(ids, vec![])]));
        assert!(difference < without / 20.0, "{name}: {difference:.2e}, without it {without:.2e}");
        // One token each, so that the step is recorded and replayed; in between an adapter comes and goes.
        let rows: Vec<_> = (0..5)
            .map(|i| {
                (&ids[i..=i], [vec![], vec![used(3, 1.0)], vec![used(3, -0.5)]][i % 3].clone())
            })
            .collect();
        let first = logits(&mut model, &rows);
        for round in 0..6 {
            if round == 3 {
                model.add_adapter(9, &bound).unwrap();
                model.remove_adapter(9).unwrap();
            }
            assert!(logits(&mut model, &rows) == first, "{name}, round {round}");
        }
        let alone: Vec<f32> =
            rows.iter().flat_map(|row| logits(&mut model, std::slice::from_ref(row))).collect();
        assert!(alone == first, "{name}: alone");
    }
}

#[test]
fn what_a_backend_lacks_is_refused_when_an_adapter_is_loaded() {
    let case = Case::read("llama-all");
    let mut model = case.model_on(ReferenceBackend);
    let error = model.add_adapter(0, &case.bind().unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("the reference backend cannot do adapters: "), "{error}");
    let case = Case::read("mixtral-experts");
    let mut model = case.model_on(ReferenceBackend);
    let error = model.add_adapter(0, &case.bind().unwrap()).unwrap_err().to_string();
    assert!(error.contains("cannot do adapters"), "{error}");
}
