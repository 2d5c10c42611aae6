//! Real quants against what three independent programs say about them.
//!
//! The ids are fed as one context; log-probabilities of every next id are compared.

use std::path::Path;

use pagella_backend::Backend;
use pagella_cpu::MathMode;
use pagella_formats::Checkpoint;

use crate::cpu::cpu;
use crate::directory::{all_logits, argmax, load, shared};
use crate::reference::ReferenceBackend;

/// What a program's results must agree with.
struct Bounds {
    /// Root mean square of the difference in log-probability.
    rms_logprob_diff: f64,
    /// Relative difference in perplexity.
    ppl: f64,
    /// Share of positions with the same most likely id.
    argmax_match: f64,
}

/// Float32 programs: nothing but the order of sums may differ.
const FP32: Bounds = Bounds { rms_logprob_diff: 5e-4, ppl: 1e-4, argmax_match: 0.999 };

/// ExLlamaV2 computes in binary16: its own noise is about 0.015 root mean square.
const FP16: Bounds = Bounds { rms_logprob_diff: 0.03, ppl: 2e-3, argmax_match: 0.97 };

/// Models, the float32 program that ran them, the prefix of its tensors, that of ExLlamaV2's.
const MODELS: &[(&str, &str, &str, &str)] = &[
    ("target-fp16", "transformers_fp32", "", "fp16."),
    ("exl2-2.5bpw", "exact_fp32", "2.5.", "2.5."),
    ("exl2-4.0bpw", "exact_fp32", "4.0.", "4.0."),
    ("exl2-6.0bpw", "exact_fp32", "6.0.", "6.0."),
    ("gptq-g128", "exact_fp32", "gptq-g128.", "gptq-g128."),
    ("gptq-g128-act", "exact_fp32", "gptq-g128-act.", "gptq-g128-act."),
];

/// EXL3 models, the prefix of what a float32 program made of their exact weights, and that of
/// ExLlamaV3's own results.
const EXL3_MODELS: &[(&str, &str, &str)] = &[
    ("exl3-2.0bpw", "exact-2.0.", "2.0.gemm."),
    ("exl3-3.0bpw", "exact-3.0.", "3.0.gemm."),
    ("exl3-3.0bpw-mcg", "exact-3.0-mcg.", "3.0-mcg."),
    ("exl3-4.0bpw", "exact-4.0.", "4.0.gemm."),
];

/// Ids that the slow reference backend is fed.
const REFERENCE_IDS: usize = 128;

/// What a run gives: the log-probability of every next id, and the most likely one.
struct Scores {
    logprob: Vec<f64>,
    argmax: Vec<u32>,
}

#[test]
fn the_pass_without_rounding_scores_like_float32_programs() {
    let (Some(models), Some(golden)) = (shared("models"), shared("golden")) else { return };
    for (model, program, prefix, _) in MODELS {
        let expected = open(&golden, program);
        let ids = &ids(&expected)[..=REFERENCE_IDS];
        let scores = score(&models.join(model), ReferenceBackend, ids);
        compare(&format!("{model} against {program}"), &scores, &expected, prefix, &FP32);
    }
}

#[test]
fn quants_on_the_cpu_score_like_the_programs_that_define_them() {
    let (Some(models), Some(golden)) = (shared("models"), shared("golden")) else { return };
    let exllama = open(&golden, "exllamav2");
    for (model, program, prefix, exllama_prefix) in MODELS {
        let expected = open(&golden, program);
        let scores = score(&models.join(model), cpu(MathMode::Exact, 2), &ids(&expected));
        let what = format!("{model} against {program}");
        compare(&what, &scores, &expected, prefix, &FP32);
        compare(&format!("{model} against ExLlamaV2"), &scores, &exllama, exllama_prefix, &FP16);
    }
}

#[test]
fn exl3_on_the_cpu_scores_like_the_programs_that_define_it() {
    let (Some(models), Some(golden)) = (shared("models"), shared("golden")) else { return };
    let (exllama, ids) = (open(&golden, "exllamav3"), ids(&open(&golden, "transformers_fp32")));
    for (model, exact_prefix, exllama_prefix) in EXL3_MODELS {
        let scores = score(&models.join(model), cpu(MathMode::Exact, 2), &ids);
        compare(&format!("{model}, exact"), &scores, &exllama, exact_prefix, &FP32);
        compare(&format!("{model} against ExLlamaV3"), &scores, &exllama, exllama_prefix, &FP16);
    }
}

fn open(golden: &Path, program: &str) -> Checkpoint {
    Checkpoint::open_file(&golden.join(format!("{program}.safetensors"))).unwrap()
}

fn ids(golden: &Checkpoint) -> Vec<u32> {
    let ids = golden.require("input_ids").unwrap().to_i64_vec().unwrap();
    ids.into_iter().map(|id| id as u32).collect()
}

fn score<B: Backend>(dir: &Path, backend: B, ids: &[u32]) -> Scores {
    let mut model = load(dir, backend, 512).unwrap();
    let logits = all_logits(&mut model, &ids[..ids.len() - 1], 512);
    let rows = || logits.chunks_exact(model.spec().vocab);
    let logprob = rows().zip(&ids[1..]).map(|(row, id)| {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        f64::from(row[*id as usize] - largest) - sum.ln()
    });
    Scores { logprob: logprob.collect(), argmax: rows().map(argmax).collect() }
}

/// Compares as many positions as were scored.
fn compare(what: &str, got: &Scores, golden: &Checkpoint, prefix: &str, bounds: &Bounds) {
    let n = got.logprob.len();
    let want = golden.require(&format!("{prefix}logprob_full")).unwrap().to_f32().unwrap();
    let want: Vec<f64> = want[..n].iter().map(|value| f64::from(*value)).collect();
    let argmax = golden.require(&format!("{prefix}argmax_full")).unwrap().to_i64_vec().unwrap();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / n as f64;
    let rms =
        mean(&mut got.logprob.iter().zip(&want).map(|(got, want)| (got - want).powi(2))).sqrt();
    let ppl = (-mean(&mut got.logprob.iter().copied())).exp();
    let ppl_want = (-mean(&mut want.iter().copied())).exp();
    let same = got.argmax.iter().zip(&argmax).filter(|(got, want)| i64::from(**got) == **want);
    let argmax_match = same.count() as f64 / n as f64;
    println!("{what}: rms {rms:.2e}, ppl {ppl:.4} for {ppl_want:.4}, argmax {argmax_match:.4}");
    assert!(rms <= bounds.rms_logprob_diff, "{what}: rms {rms:e}");
    assert!((ppl / ppl_want - 1.0).abs() <= bounds.ppl, "{what}: ppl {ppl} for {ppl_want}");
    assert!(argmax_match >= bounds.argmax_match, "{what}: argmax {argmax_match}");
}
