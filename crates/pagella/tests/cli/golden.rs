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

/// Weights dequantised by the published formulas, then float32 arithmetic, keys and values included.
/// Our cache rounds those to f16. On the 6.0 bit model that program and ours differ by 0.0025 RMS,
/// and so does a plain f32 backend with an f16 cache; the limits are four times that and, for
/// perplexity and argmax, what that much noise can do.
#[test]
fn perplexities_agree_with_exact_arithmetic() {
    let Some(shared) = shared("perplexities_agree_with_exact_arithmetic") else { return };
    let golden = shared.join("golden/exact_fp32.safetensors");
    for (model, name, ppl) in [
        ("exl2-2.5bpw", "2.5", 105.7490),
        ("exl2-4.0bpw", "4.0", 15.0666),
        ("exl2-6.0bpw", "6.0", 13.3607),
        ("gptq-g128", "gptq-g128", 15.8990),
        ("gptq-g128-act", "gptq-g128-act", 15.2131),
    ] {
        let dir = shared.join("models").join(model);
        let golden = text(&golden);
        let args = ["--ids", golden, "--expect", golden, "--prefix", name, "--json"];
        let found = pagella(&[&["ppl", text(&dir)][..], &args].concat()).json();
        let near = (found["ppl"].as_f64().unwrap() / ppl - 1.0).abs();
        assert!(near < 1e-3, "{model}: {found}");
        assert!(found["rms_logprob_diff"].as_f64().unwrap() < 0.01, "{model}: {found}");
        assert!(found["argmax_match"].as_f64().unwrap() > 0.995, "{model}: {found}");
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
