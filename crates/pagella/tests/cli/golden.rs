//! The command against values of other programs, on models too large for the repository.

use std::path::{Path, PathBuf};

use crate::support::{pagella, text};

/// The folder of shared data, or a loud word that the test did not run.
fn shared(test: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let dir = std::env::var_os("PAGELLA_SHARED").map_or_else(beside, PathBuf::from);
    if dir.join("golden").is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: {test} (shared data not found)");
    None
}

/// Models, the program that ran them in float32, the prefix of its tensors, and its perplexity.
const MODELS: &[(&str, &str, Option<&str>, f64)] = &[
    ("target-fp16", "transformers_fp32", None, 13.1495),
    ("exl2-2.5bpw", "exact_fp32", Some("2.5"), 105.7490),
    ("exl2-4.0bpw", "exact_fp32", Some("4.0"), 15.0666),
    ("exl2-6.0bpw", "exact_fp32", Some("6.0"), 13.3607),
    ("gptq-g128", "exact_fp32", Some("gptq-g128"), 15.8990),
    ("gptq-g128-act", "exact_fp32", Some("gptq-g128-act"), 15.2131),
];

/// `pagella ppl` on a model, compared with a program.
fn ppl(shared: &Path, model: &str, program: &str, more: &[&str]) -> serde_json::Value {
    let golden = shared.join(format!("golden/{program}.safetensors"));
    let (dir, golden) = (shared.join("models").join(model), text(&golden));
    let args = ["ppl", text(&dir), "--ids", golden, "--expect", golden, "--json"];
    pagella(&[&args[..], more].concat()).json()
}

/// Nothing but the order of sums differs from a float32 program.
#[test]
fn perplexities_agree_with_float32_programs() {
    let Some(shared) = shared("perplexities_agree_with_float32_programs") else { return };
    for (model, program, prefix, expected) in MODELS {
        let prefix: Vec<&str> = prefix.map_or(vec![], |name| vec!["--prefix", name]);
        let found = ppl(&shared, model, program, &prefix);
        let near = (found["ppl"].as_f64().unwrap() / expected - 1.0).abs();
        assert!(near < 1e-4, "{model}: {found}");
        assert!(found["rms_logprob_diff"].as_f64().unwrap() < 5e-4, "{model}: {found}");
        assert!(found["argmax_match"].as_f64().unwrap() >= 0.999, "{model}: {found}");
    }
}

/// ExLlamaV2 computes in binary16; its own noise is about 0.015 RMS.
#[test]
fn perplexities_agree_with_exllamav2() {
    let Some(shared) = shared("perplexities_agree_with_exllamav2") else { return };
    for (model, _, prefix, _) in MODELS {
        let found = ppl(&shared, model, "exllamav2", &["--prefix", prefix.unwrap_or("fp16")]);
        assert!(found["rms_logprob_diff"].as_f64().unwrap() < 0.03, "{model}: {found}");
    }
}

/// What smaller caches may cost in mean log-likelihood, and that fp16 costs nothing to speak of.
#[test]
fn each_cache_keeps_its_promise() {
    let Some(shared) = shared("each_cache_keeps_its_promise") else { return };
    for model in ["exl2-4.0bpw", "target-fp16"] {
        let nll = |cache: &str| {
            let golden = shared.join("golden/transformers_fp32.safetensors");
            let dir = shared.join("models").join(model);
            let args = ["ppl", text(&dir), "--ids", text(&golden), "--json", "--cache", cache];
            let steps = ["--prefill", "512", "--steps", "256"];
            pagella(&[&args[..], &steps].concat()).json()["nll"].as_f64().unwrap()
        };
        let exact = nll("fp32");
        let fp16 = nll("fp16");
        assert!((fp16 - exact).abs() < 1e-3, "{model}: fp16 {fp16}, fp32 {exact}");
        for (cache, limit) in [("q8", 0.005), ("fp8", 0.10), ("q6", 0.03), ("q4", 0.10)] {
            let found = nll(cache);
            assert!((found - fp16).abs() < limit, "{model} {cache}: {found}, fp16 {fp16}");
        }
    }
}

#[test]
fn stepwise_values_agree_with_exllamav2_through_the_cache() {
    let Some(shared) = shared("stepwise_values_agree_with_exllamav2") else { return };
    let golden = shared.join("golden/exllamav2.safetensors");
    let (golden, dir) = (text(&golden), shared.join("models/exl2-6.0bpw"));
    let args = ["--ids", golden, "--expect", golden, "--prefix", "6.0", "--json"];
    let steps = ["--prefill", "512", "--steps", "256"];
    let found = pagella(&[&["ppl", text(&dir)][..], &args, &steps].concat()).json();
    assert_eq!(found["compared_with"], "6.0.fp16.step_logprob");
    // Two noisy f16 programs: about 0.015 RMS each.
    assert!(found["rms_logprob_diff"].as_f64().unwrap() < 0.03, "{found}");
}
