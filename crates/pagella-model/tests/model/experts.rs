//! Models with experts: quantised ones, the formula on a whole layer, and neighbours that do not matter.

use std::path::Path;

use pagella_arch::{MlpSpec, SpecOptions, load_spec};
use pagella_backend::{Backend, KvFormat, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_cpu::MathMode;
use pagella_formats::OwnedLinear;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::synthetic::{RowOrder, exl2, gptq, plain_f16};
use pagella_model::{Cache, LoadOptions, MemoryReport, Model, predict_memory};

use crate::cpu::cpu;
use crate::directory::{all_logits_in, load};
use crate::families::case;
use crate::reference::ReferenceBackend;

/// Ids of the small vocabulary.
fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) % 160).collect()
}

/// A Qwen3 with 12 experts of which a token takes 3; the first layer is dense.
const CONFIG: &str = r#"{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 160,
    "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256,
    "moe_intermediate_size": 64, "num_experts": 12, "num_experts_per_tok": 3,
    "norm_topk_prob": true, "mlp_only_layers": [0], "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1024}"#;

/// Makes a linear of so many inputs and outputs from a seed.
type Make = fn(usize, usize, u64) -> OwnedLinear;

/// Writes [`CONFIG`] with random weights; `make` gives a linear of the layers.
fn write(dir: &Path, make: Make) {
    std::fs::write(dir.join("config.json"), CONFIG).unwrap();
    let spec = load_spec(dir, &SpecOptions::default()).unwrap();
    let embedding = plain_f16(spec.hidden, spec.vocab, 1);
    let linears: Vec<(String, OwnedLinear)> = spec
        .linear_specs()
        .enumerate()
        .map(|(seed, (label, linear))| {
            let (inputs, outputs) = (linear.in_features, linear.out_features);
            let plain = label == "head" || label.ends_with("router");
            let made = match plain {
                true => plain_f16(inputs, outputs, seed as u64),
                false => make(inputs, outputs, seed as u64),
            };
            (linear.bases[0].clone(), made)
        })
        .collect();
    let ones = 1.0f32.to_le_bytes().repeat(spec.hidden);
    let norms = spec.norm_specs().map(|(_, norm)| TensorData {
        name: format!("{}.weight", norm.bases[0]),
        dtype: pagella_formats::Dtype::F32,
        shape: vec![norm.width],
        data: &ones[..4 * norm.width],
    });
    let mut tensors: Vec<TensorData<'_>> = norms.collect();
    tensors.extend(embedding.named(&spec.embed.name));
    tensors.extend(linears.iter().flat_map(|(base, linear)| linear.named(base)));
    write_file(&dir.join("model.safetensors"), &tensors).unwrap();
}

/// Experts as the EXL2 converter leaves them: widths differ from one to the next.
fn exl2_mixed(inputs: usize, outputs: usize, seed: u64) -> OwnedLinear {
    match seed % 3 {
        0 => exl2(inputs, outputs, &[(6, 0.25, 32), (4, 0.75, 64)], seed),
        1 => exl2(inputs, outputs, &[(8, 0.25, 32), (3, 0.75, 32)], seed),
        _ => exl2(inputs, outputs, &[(5, 0.5, 32), (2, 0.5, 32)], seed),
    }
}

fn gptq_shuffled(inputs: usize, outputs: usize, seed: u64) -> OwnedLinear {
    gptq(inputs, outputs, 32, RowOrder::Shuffled, seed)
}

/// Root mean square of the difference, relative to the values.
fn relative_rms(found: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let error = square(&mut found.iter().zip(wanted).map(|(a, b)| a - b));
    (error / square(&mut wanted.iter().copied())).sqrt()
}

#[test]
fn quantised_experts_give_the_logits_of_the_reference_backend() {
    let kinds: [(&str, Make); 3] =
        [("exl2", exl2_mixed), ("gptq", gptq_shuffled), ("f16", plain_f16)];
    for (name, make) in kinds {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), make);
        let ids = ids(40);
        let mut reference = load(dir.path(), ReferenceBackend, 64).unwrap();
        let wanted = all_logits_in(KvFormat::F32, &mut reference, &ids, 64);
        for (math, limit) in [(MathMode::Exact, 2e-5), (MathMode::Wide, 2e-3)] {
            let mut model = load(dir.path(), cpu(math, 2), 64).unwrap();
            let found = all_logits_in(KvFormat::F32, &mut model, &ids, 64);
            let rows = found.chunks(160).zip(wanted.chunks(160));
            let mut errors: Vec<f64> = rows.map(|(row, want)| relative_rms(row, want)).collect();
            errors.sort_by(f64::total_cmp);
            // Where two logits of a router are close, coarser numbers may choose another expert.
            let worst = if math == MathMode::Exact { 39 } else { 20 };
            println!("{name} {math:?}: {:.1e} … {:.1e}", errors[0], errors[39]);
            assert!(errors[worst] <= limit, "{name} {math:?}: {errors:?}");
        }
    }
}

#[test]
fn the_prediction_is_what_the_loaded_model_reports() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), exl2_mixed);
    let model = load(dir.path(), ReferenceBackend, 64).unwrap();
    let options = LoadOptions { step_tokens_max: 64, ..LoadOptions::default() };
    let predicted = predict_memory(dir.path(), model.spec(), &options).unwrap();
    let memory = model.memory();
    assert_eq!(predicted.report.layers, memory.layers);
    assert_eq!(predicted.report.kinds, memory.kinds);
    // Two layers of 12 experts, of which a token takes 3; the reference backend widens to f32.
    let idle = 4 * 2 * 9 * 3 * 128 * 64;
    assert_eq!(memory.weights_bytes - memory.token_bytes, idle);
    let share = |report: &MemoryReport| report.token_bytes as f64 / report.weights_bytes as f64;
    let shares = (share(&predicted.report), share(&memory));
    assert!((shares.0 - shares.1).abs() < 0.1, "{shares:?}");
    assert_eq!(predicted.report.scratch_bytes, memory.scratch_bytes);
    // Residual; two kinds of layers; a dense MLP; experts; one row of logits.
    let attention = 2 * 128 + 2 * 64;
    let experts = 128 + 12 + 3 * (2 * 64 + 128);
    let elements = 64 * (128 + 2 * attention + 2 * 256 + experts) + 160;
    assert_eq!(memory.scratch_bytes, 4 * elements as u64);
}

#[test]
fn a_single_expert_is_a_dense_mlp() {
    // One expert of one, weight 1: the same linears as an MLP must give the same logits.
    let mut sparse = case("llama-gqa");
    let dense = sparse.run(ReferenceBackend);
    for layer in &mut sparse.spec.layers {
        let MlpSpec::Gated { gate, up, down, act } = layer.mlp.clone() else {
            panic!("a gated case");
        };
        let router = pagella_arch::LinearSpec { out_features: 1, ..gate.clone() };
        let bases = vec![gate.bases[0].replace("gate_proj", "router")];
        layer.mlp = MlpSpec::Moe(Box::new(pagella_arch::MoeSpec {
            router: pagella_arch::LinearSpec { bases, ..router },
            experts: vec![[gate, up, down]],
            experts_per_token: 1,
            score: pagella_arch::RouterScore::Softmax,
            selection_bias: None,
            groups: None,
            renormalize: false,
            weight_scale: 1.0,
            weigh: pagella_arch::Weigh::Output,
            act,
            shared: None,
        }));
    }
    for index in 0..sparse.spec.layers.len() {
        let name = format!("model.layers.{index}.mlp.router.weight");
        sparse.tensors.push(crate::directory::Tensor::filled(&name, &[1, 96], 0.5));
    }
    assert!(relative_rms(&sparse.run(ReferenceBackend), &dense) < 1e-6);
    assert!(relative_rms(&sparse.run(cpu(MathMode::Exact, 2)), &dense) < 1e-5);
}

fn step<B: Backend>(model: &mut Model<B>, kv: &mut Cache<B>, rows: &[StepRow<'_>]) -> Vec<f32> {
    let mut logits = Vec::new();
    model.forward(&StepPlan::new(rows).unwrap(), kv).unwrap();
    model.read_logits(&mut logits).unwrap();
    logits
}

#[test]
fn logits_do_not_depend_on_threads_or_chunks() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), exl2_mixed);
    let ids = ids(130);
    for math in [MathMode::Exact, MathMode::Wide] {
        let mut first = None;
        for threads in [1, 3] {
            let mut model = load(dir.path(), cpu(math, threads), 130).unwrap();
            for chunk in [1, 2, 7, 64, 130] {
                let found = all_logits_in(KvFormat::F16, &mut model, &ids, chunk);
                let wanted = first.get_or_insert_with(|| found.clone());
                assert!(found == *wanted, "{math:?}, {threads} threads, chunks of {chunk}");
            }
        }
    }
}

#[test]
fn a_row_of_a_ragged_batch_equals_the_row_alone() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), exl2_mixed);
    let all = ids(400);
    // Past and new tokens of each row; prompt chunks and decode rows share the step.
    let rows = [(0, 5), (200, 1), (255, 2), (10, 40), (0, 1), (30, 1)];
    for math in [MathMode::Exact, MathMode::Wide] {
        let mut model = load(dir.path(), cpu(math, 2), 300).unwrap();
        let vocab = model.spec().vocab;
        let mut kv = model.new_kv(KvFormat::F16, 2 * rows.len() * PAGE_TOKENS).unwrap();
        let pages = |r: usize| [2 * r as u32 + 1, 2 * r as u32];
        let own = |r: usize, from: usize, to: usize| &all[r + from..r + to];
        for (r, (past, _)) in rows.iter().enumerate().filter(|(_, (past, _))| *past > 0) {
            let pages = pages(r);
            let row = StepRow::new(own(r, 0, *past), 0, &pages, LogitUse::None);
            step(&mut model, &mut kv, &[row]);
        }
        let lists: Vec<[u32; 2]> = (0..rows.len()).map(pages).collect();
        let batch: Vec<StepRow<'_>> = rows
            .iter()
            .enumerate()
            .map(|(r, (past, new))| {
                let ids = own(r, *past, past + new);
                StepRow::new(ids, *past, &lists[r], LogitUse::Choice)
            })
            .collect();
        let together = step(&mut model, &mut kv, &batch);
        for (r, (past, new)) in rows.iter().enumerate() {
            let alone = all_logits_in(KvFormat::F16, &mut model, own(r, 0, past + new), 300);
            let wanted = &alone[alone.len() - vocab..];
            assert!(&together[r * vocab..(r + 1) * vocab] == wanted, "{math:?}: row {r}");
        }
    }
}
