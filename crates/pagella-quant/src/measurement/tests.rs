//! Files of ours and of ExLlamaV2, whole and damaged.

use super::*;
use crate::candidates::{attention_candidates, mlp_candidates};

const CANDIDATE: &str = r#"{
    "accuracy": 0.9, "total_bits": 1000,
    "q_proj": {"group_size": {"3": 64, "2": 128}, "bits": [3, 2], "bits_prop": [0.05, 0.95], "scale_bits": 4}
}"#;

fn file_of(module: &str) -> String {
    format!(r#"{{"measurement": {{"model.layers.0.self_attn": {module}}}, "last_module_idx": 4}}"#)
}

fn load(text: &str) -> Result<Measurement, QuantError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("measurement.json");
    std::fs::write(&path, text).unwrap();
    Measurement::load(&path)
}

#[test]
fn what_is_saved_is_what_is_loaded() {
    let params = |idx: usize| attention_candidates()[idx].q_k.clone();
    let candidate = |idx: usize, divergence| MeasuredCandidate {
        accuracy: if idx == 0 { 0.5 } else { 0.9375 },
        divergence,
        total_bits: 1 << (40 + idx),
        linears: vec![("q_proj".to_owned(), params(idx)), ("o_proj".to_owned(), params(3))],
    };
    let both = vec![candidate(0, None), candidate(14, Some(0.125))];
    let measurement = Measurement {
        modules: vec![
            ("b".to_owned(), ModuleMeasurement::Candidates(both.clone())),
            ("a".to_owned(), ModuleMeasurement::Parallel { attn: both.clone(), mlp: both }),
            ("model.norm.norm".to_owned(), ModuleMeasurement::Nothing),
        ],
        last_module_idx: 66,
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("measurement.json");
    measurement.save(&path).unwrap();
    assert_eq!(Measurement::load(&path).unwrap(), measurement);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let found = measurement.module("b");
    let Some(ModuleMeasurement::Candidates(found)) = found else { panic!("{found:?}") };
    assert_eq!(found[1].params("q_proj"), Some(&params(14)));
    assert_eq!(found[1].params("v_proj"), None);
}

#[test]
fn group_sizes_have_three_spellings() {
    let by_width = load(&file_of(&format!("[{CANDIDATE}]"))).unwrap();
    let listed = CANDIDATE.replace(r#"{"3": 64, "2": 128}"#, "[64, 128]");
    assert_eq!(load(&file_of(&format!("[{listed}]"))).unwrap(), by_width);
    let single = CANDIDATE.replace(r#"{"3": 64, "2": 128}"#, "64");
    let single = load(&file_of(&format!("[{single}]"))).unwrap();
    let Some(ModuleMeasurement::Candidates(found)) = single.module("model.layers.0.self_attn")
    else {
        panic!()
    };
    let sizes = found[0].linears[0].1.widths().iter().map(|width| width.group_rows);
    assert_eq!(sizes.collect::<Vec<_>>(), [64, 64]);
}

#[test]
fn every_fault_is_named_with_its_place() {
    let place = "model.layers.0.self_attn[0]";
    for (from, to, expected) in [
        ("0.9,", "1.9,", "accuracy: an accuracy is from 0 to 1"),
        ("0.9,", "\"x\",", "accuracy: a number is needed"),
        ("\"accuracy\": 0.9, ", "", "`accuracy` is missing"),
        ("1000,", "-1,", "total_bits: a whole number is needed"),
        ("1000,", "1000, \"extra\": 3,", "extra: an object is needed"),
        ("1000,", "1000, \"divergence\": -1,", "divergence: it must not be negative"),
        ("[3, 2]", "[3]", "q_proj: `bits` and `bits_prop` have different lengths"),
        ("[3, 2]", "[3, 7]", "q_proj.group_size: `7` is missing"),
        ("[3, 2]", "[300, 2]", "q_proj.bits[0]: 300 bits"),
        ("\"2\": 128", "\"2\": 100", "groups of 100 rows"),
        ("0.95]", "0.8]", "shares add up to 0.85"),
        ("\"scale_bits\": 4", "\"scale_bits\": 6", "q_proj.scale_bits: EXL2 has 4 bits per scale"),
    ] {
        let changed = CANDIDATE.replace(from, to);
        assert_ne!(changed, CANDIDATE, "{from}");
        let message = load(&file_of(&format!("[{changed}]"))).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains(place), "{message}");
    }
    for (text, expected) in [
        ("{", "EOF"),
        ("[]", "the file: an object is needed"),
        ("{}", "`measurement` is missing"),
        (r#"{"measurement": {}}"#, "`last_module_idx` is missing"),
        (&file_of("[]"), "there is no candidate"),
        (&file_of("3"), "a list of candidates"),
        (&file_of("{}"), "`attn` is missing"),
        (&file_of(r#"[{"accuracy": 1, "total_bits": 1}]"#), "no parameters of linears"),
    ] {
        let message = load(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// A file that ExLlamaV2 has written for a model of hidden size 384 with 128 for keys and 1024 inside.
#[test]
fn a_file_of_exllamav2_agrees_with_our_candidates_and_costs() {
    let shared = std::env::var_os("PAGELLA_SHARED").map(std::path::PathBuf::from);
    let near = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = shared.unwrap_or(near).join("golden/exllamav2-measurement.json");
    if !path.exists() {
        println!("SKIPPED: {} (shared data not found)", path.display());
        return;
    }
    let measurement = Measurement::load(&path).unwrap();
    assert_eq!((measurement.modules.len(), measurement.last_module_idx), (18, 18));
    let shape = |name: &str| match name {
        "q_proj" | "o_proj" => (384, 384),
        "k_proj" | "v_proj" => (384, 128),
        "down_proj" => (1024, 384),
        _ => (384, 1024),
    };
    let (attention, mlp) = (attention_candidates(), mlp_candidates());
    for (name, module) in &measurement.modules {
        let ModuleMeasurement::Candidates(found) = module else {
            assert!(name == "model.norm.norm" || name == "lm_head.linear", "{name}");
            continue;
        };
        assert_eq!(found.len(), if name.ends_with("self_attn") { 19 } else { 17 });
        for (idx, candidate) in found.iter().enumerate() {
            let cost = |(name, params): &(String, LinearParams)| {
                let (inputs, columns) = shape(name);
                params.cost_bits(inputs, columns, false)
            };
            let total: u64 = candidate.linears.iter().map(cost).sum();
            assert_eq!(candidate.total_bits, total, "{name} {idx}");
            for (name, params) in &candidate.linears {
                let ours = match name.as_str() {
                    "q_proj" | "k_proj" => &attention[idx].q_k,
                    "v_proj" => &attention[idx].v,
                    "o_proj" => &attention[idx].o,
                    "gate_proj" => &mlp[idx].gate,
                    "up_proj" => &mlp[idx].up,
                    _ => &mlp[idx].down,
                };
                assert_eq!(params, ours);
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("measurement.json");
    measurement.save(&copy).unwrap();
    assert_eq!(Measurement::load(&copy).unwrap(), measurement);
}
