//! One small configuration of every family: what is written loads, is quantised where it should be, and
//! stays close to its source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pagella_arch::{Extra, SpecOptions, families, load_spec};
use pagella_formats::synthetic::{SmallFloatKind, small_float};
use pagella_formats::{Checkpoint, LinearKind};
use pagella_model::Survey;
use pagella_quant::calibration::Rows;
use pagella_quant::diff::{Difference, diff, plot};

use crate::source::{Store, cpu, fill, options, run, write_source, write_stored};

/// Linears that stay as they are wherever they occur.
const KEPT: &[&str] = &["mlp.router", "mlp.shared.weight", "attn.unfold"];

/// Bits per weight that all cases are given.
const RATE: f64 = 6.0;

/// What they may cost at most: divergence in nats, and relative error after any layer. Random weights
/// keep nothing small: found are up to 0.058 and 0.23. A linear with a wrong order, scale or bias gives
/// errors of the size of the states, 1.
const DIVERGENCE_MAX: f64 = 0.1;
const ERROR_MAX: f64 = 0.3;

/// How much less likely ids may become on average, in nats: the logarithm of the ratio of perplexities. For
/// some random weights ids are next to impossible, at up to 38 nats; there it is a share of them.
const LOSS_MAX: f64 = 0.1;
const LOSS_SHARE_MAX: f64 = 0.01;

pub fn spec(dir: &Path) -> pagella_arch::ModelSpec {
    load_spec(dir, &SpecOptions::default()).unwrap()
}

fn compare(source: &Path, target: &Path) -> Difference {
    let vocab = spec(source).vocab as u32;
    let ids = (0..8).map(|row| (0..32).map(|at| (row * 37 + at * 11 + 5) % vocab).collect());
    let rows = Rows::of_ids(ids.collect());
    let specs = [spec(source), spec(target)];
    diff([source, target], specs, &cpu(2), &rows, Some(2), &mut |_| {}).unwrap()
}

#[test]
fn what_is_not_a_number_does_not_pass_for_agreement() {
    let dir = tempfile::tempdir().unwrap();
    for (part, place) in [("layers.1.mlp", "after layer 1"), ("lm_head", "in its answers")] {
        let (whole, damaged) = (dir.path().join("whole"), dir.path().join(part));
        write_source("llama-gqa", &whole);
        write_source("llama-gqa", &damaged);
        fill(&damaged, part, 0xff);
        let rows = Rows::of_ids(vec![(1..33).collect()]);
        for pair in [[&whole, &damaged], [&damaged, &whole], [&damaged, &damaged]] {
            let specs = [spec(&whole), spec(&whole)];
            let pair = pair.map(|dir| dir.as_path());
            let error = diff(pair, specs, &cpu(1), &rows, Some(1), &mut |_| {}).unwrap_err();
            assert!(error.to_string().contains(&format!("{part}: values {place}")), "{error}");
        }
    }
}

fn quantizes(case: &str) -> tempfile::TempDir {
    quantizes_stored(case, &|_, _| None)
}

/// [`quantizes`] of linears that are stored otherwise.
fn quantizes_stored(case: &str, store: Store<'_>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    write_stored(case, &source, store);
    let outcome =
        run(&options(&source, &target, &[RATE])).unwrap_or_else(|e| panic!("{case}: {e}"));
    let model = &outcome.models[0];
    assert!(model.layer_bits <= 8.3 && model.layer_bits > 5.5, "{case}: {model:?}");
    assert!(!dir.path().join("target.quantize").exists());

    let spec = spec(&target);
    let survey = Survey::of(&target, &spec).unwrap();
    for ((label, linear), fact) in spec.linear_specs().zip(&survey.linears) {
        let stays = KEPT.iter().any(|kept| label.ends_with(kept)) || linear.in_features % 32 != 0;
        let expected = if stays { LinearKind::Plain } else { LinearKind::Exl2 };
        assert_eq!(fact.kind, expected, "{case}: {label}");
    }
    assert!(survey.unused.iter().all(|unused| unused.kind != Extra::Own), "{case}");
    let config = std::fs::read_to_string(target.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["quantization_config"]["quant_method"], "exl2");
    dir
}

/// Quantises a case and holds it against its source; what is out of range, if anything.
fn too_much_lost(case: &str) -> Option<String> {
    let dir = quantizes(case);
    let found = compare(&dir.path().join("source"), &dir.path().join("target"));
    let [before, after] = found.perplexities.map(f64::ln);
    let is_close = found.divergence < DIVERGENCE_MAX
        && found.layers.iter().all(|error| *error < ERROR_MAX)
        && after - before < LOSS_MAX.max(LOSS_SHARE_MAX * before);
    (!is_close).then(|| format!("{case}: {found:?}"))
}

/// A first case that is no measure of rounding. Its tied random embedding makes answers all but certain
/// (other ids lose 17.6 nats), and its random router is so undecided that any rounding gives some tokens
/// other experts, which costs up to 7 nats each. Its linears rounded to the nearest of 6 bits,
/// embedding and head left alone, diverge by 0.14; this program's, head included, by 0.17 with the 128
/// tokens of calibration that are given here, and by 0.10 with 2,048.
const UNDECIDED: &str = "minimaxm2-full-rotation-tied";

/// The first case of every family, by its name.
fn one_of_each() -> BTreeMap<&'static str, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families");
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut dirs: Vec<PathBuf> = entries.filter(|dir| dir.join("config.json").exists()).collect();
    dirs.sort();
    let mut found = BTreeMap::new();
    for dir in dirs {
        let case = dir.file_name().unwrap().to_string_lossy().into_owned();
        if case != UNDECIDED {
            found.entry(spec(&dir).family).or_insert(case);
        }
    }
    found
}

#[test]
fn every_family_quantises_with_little_loss() {
    let cases = one_of_each();
    let missing: Vec<&str> =
        families().iter().map(|f| f.name).filter(|name| !cases.contains_key(name)).collect();
    assert!(missing.is_empty(), "no case of {missing:?}");
    let lost: Vec<String> = cases.values().filter_map(|case| too_much_lost(case)).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn small_floats_of_every_kind_are_a_source() {
    let store = |base: &str, [outputs, inputs]: [usize; 2]| {
        use SmallFloatKind::{Fp8, Fp8E5m2, Mxfp4, Nf4, Nvfp4};
        let (_, projection) = base.rsplit_once('.')?;
        let kind = match projection {
            "q_proj" | "up_proj" => Fp8,
            "k_proj" => Fp8E5m2,
            "v_proj" | "gate_proj" => Mxfp4,
            "o_proj" => Nf4,
            "down_proj" => Nvfp4,
            _ => return None,
        };
        Some(small_float(kind, inputs, outputs, base.len() as u64))
    };
    let dir = quantizes_stored("llama-gqa", &store);
    let source = spec(&dir.path().join("source"));
    let kinds = Survey::of(&dir.path().join("source"), &source).unwrap().linears;
    let count = |kind| kinds.iter().filter(|linear| linear.kind == kind).count();
    let layers = source.layers.len();
    assert_eq!(count(LinearKind::Fp8), 3 * layers);
    assert_eq!(count(LinearKind::Mxfp4), 2 * layers);
    assert_eq!((count(LinearKind::Nvfp4), count(LinearKind::Bnb4)), (layers, layers));
}

#[test]
fn llama_and_its_index_agree_with_the_files() {
    let dir = quantizes("llama-gqa");
    let target = dir.path().join("target");
    let index = std::fs::read_to_string(target.join("output.safetensors.index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let file = Checkpoint::open_file(&target.join("output.safetensors")).unwrap();
    let listed = index["weight_map"].as_object().unwrap();
    assert!(file.names().eq(listed.keys().map(String::as_str)));
    assert_eq!(index["metadata"]["total_size"].as_u64(), Some(file.total_bytes()));
    let picture = plot(&compare(&dir.path().join("source"), &target), ["a", "b"]);
    assert!(picture.starts_with("<svg"));
}

#[test]
fn tied_heads_and_norms_of_heads() {
    let dir = quantizes("qwen3-gqa-tied");
    let file = Checkpoint::open(&dir.path().join("target"), &[]).unwrap();
    assert!(file.contains("lm_head.q_weight") && file.contains("model.embed_tokens.weight"));
    let norm = file.tensor("model.layers.0.self_attn.q_norm.weight").unwrap();
    assert_eq!(norm.shape.len(), 2, "written for every head");
}

#[test]
fn fused_projections_are_split() {
    let dir = quantizes("phi3-mha");
    let file = Checkpoint::open(&dir.path().join("target"), &[]).unwrap();
    assert!(file.contains("model.layers.0.self_attn.k_proj.q_weight"));
    assert!(file.contains("model.layers.0.mlp.up_proj.q_weight"));
    assert!(file.names().all(|name| !name.contains("qkv_proj") && !name.contains("gate_up")));
}

#[test]
fn biases_and_transposed_weights() {
    let dir = quantizes("gpt2-mha");
    let file = Checkpoint::open(&dir.path().join("target"), &[]).unwrap();
    assert!(file.contains("model.layers.0.mlp.c_fc.bias"));
}

#[test]
fn what_a_family_can_be_beyond_its_first_case() {
    for case in ["gptoss-plain-rope-tied", "deepseekv2-groups-yarn", "gemma2-gqa"] {
        assert_eq!(too_much_lost(case), None);
    }
}

#[test]
fn a_language_model_inside_another_keeps_its_names_and_the_head_its_place() {
    for (case, layers, head) in [
        ("mistral3-new-names-tied", "model.language_model.", "lm_head"),
        ("gemma3vl-old-names", "language_model.model.", "language_model.lm_head"),
    ] {
        let dir = quantizes(case);
        let file = Checkpoint::open(&dir.path().join("target"), &[]).unwrap();
        for name in [format!("{layers}layers.0.self_attn.q_proj"), head.to_owned()] {
            assert!(file.contains(&format!("{name}.q_weight")), "{case}: {name}");
        }
    }
}

#[test]
fn weights_of_zero_need_no_bits_at_any_rate() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    write_source("llama-gqa", &source);
    fill(&source, "mlp", 0);
    for rate in [3.0, 8.0] {
        let outcome = run(&options(&source, &dir.path().join(format!("{rate}")), &[rate]));
        let model = &outcome.unwrap().models[0];
        assert!(model.layer_bits <= rate + 1.0, "{model:?}");
    }
}
