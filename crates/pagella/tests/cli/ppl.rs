//! `pagella ppl` on small files of ids made here.

use std::path::Path;

use serde_json::Value;

use crate::support::{pagella, text};

/// Writes a safetensors file by hand, so that the test does not use the reader's own writer.
fn write_tensors(path: &Path, tensors: &[(&str, &str, Vec<u8>, usize)]) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, bytes, len) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        let entry =
            serde_json::json!({"dtype": dtype, "shape": [len], "data_offsets": [start, end]});
        header.insert((*name).to_owned(), entry);
        data.extend_from_slice(bytes);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    std::fs::write(path, file).unwrap();
}

fn write_ids(path: &Path, ids: &[i32]) {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    write_tensors(path, &[("input_ids", "I32", bytes, ids.len())]);
}

fn some_ids(n: usize) -> Vec<i32> {
    (0..n as i32).map(|i| if i == 0 { 0 } else { 100 + i * 37 % 900 }).collect()
}

fn ppl(ids: &Path, more: &[&str]) -> Value {
    pagella(&[&["ppl", "demo", "--ids", text(ids), "--json"], more].concat()).json()
}

#[test]
fn the_fields_are_those_promised_and_agree_with_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    write_ids(&path, &some_ids(50));
    let found = ppl(&path, &[]);
    let fields: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["ppl", "nll", "tokens", "argmax_match"]);
    assert_eq!(found["tokens"], 49);
    assert_eq!(found["argmax_match"], Value::Null);
    let nll = found["nll"].as_f64().unwrap();
    assert!((nll.exp() - found["ppl"].as_f64().unwrap()).abs() < 1e-9 * nll.exp());
    assert!(nll > 0.0);
}

#[test]
fn chunks_threads_and_single_steps_give_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    write_ids(&path, &some_ids(300));
    let whole = ppl(&path, &[]);
    assert_eq!(whole, ppl(&path, &["--step-tokens", "7", "--threads", "1"]));
    let stepped = ppl(&path, &["--prefill", "20", "--steps", "9"]);
    assert_eq!(stepped["tokens"], 9);
    write_ids(&path, &some_ids(30));
    let short = ppl(&path, &["--prefill", "20", "--steps", "9"]);
    assert_eq!(stepped, short, "the ids after the last step do not matter");
}

#[test]
fn expected_values_are_compared_position_by_position() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, expect) = (dir.path().join("ids.safetensors"), dir.path().join("e.safetensors"));
    write_ids(&ids, &some_ids(20));
    let nll = ppl(&ids, &[])["nll"].as_f64().unwrap();
    let flat: Vec<u8> = (0..19).flat_map(|_| (-nll as f32).to_le_bytes()).collect();
    let argmax: Vec<u8> = (0..19).flat_map(|_| (-1i32).to_le_bytes()).collect();
    write_tensors(
        &expect,
        &[
            ("m.logprob_full", "F32", flat.clone(), 19),
            ("m.argmax_full", "I32", argmax, 19),
            ("short.logprob_full", "F32", flat[4..].to_vec(), 18),
        ],
    );
    let found = ppl(&ids, &["--expect", text(&expect), "--prefix", "m"]);
    assert_eq!(found["argmax_match"], 0.0);
    let (rms, max) =
        (found["rms_logprob_diff"].as_f64().unwrap(), found["max_logprob_diff"].as_f64().unwrap());
    assert!(rms > 0.1 && max > rms, "{found}");
    let args = |prefix| {
        ["ppl", "demo", "--ids", text(&ids), "--expect", text(&expect), "--prefix", prefix]
    };
    assert!(pagella(&args("short")).error(1).contains("18 values and 19 tokens"));
    assert!(pagella(&args("other")).error(1).contains("other.logprob_full"));
}

#[test]
fn a_text_can_be_measured_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.txt");
    std::fs::write(&path, "The `map()` method creates a new array. ".repeat(20)).unwrap();
    let found = pagella(&["ppl", "demo", "--text", text(&path), "--json", "-l", "64"]).json();
    assert!(found["ppl"].as_f64().unwrap() > 1.0);
    assert!(found["tokens"].as_u64().unwrap() > 128, "{found}");
}

#[test]
fn bad_files_are_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    let error = || {
        let said = pagella(&["ppl", "demo", "--ids", text(&path), "--json"]);
        said.error(1).to_owned()
    };
    assert!(error().contains("ids.safetensors"), "missing");
    std::fs::write(&path, "nonsense").unwrap();
    error();
    write_ids(&path, &[]);
    error();
    write_ids(&path, &[5]);
    assert!(error().contains("fewer than two"), "{}", error());
    write_ids(&path, &[0, 1, -7]);
    assert!(error().contains("-7"), "{}", error());
    write_ids(&path, &[0, 1, 4096]);
    assert!(error().contains("4096"), "{}", error());
    write_tensors(&path, &[("other", "I32", vec![0; 4], 1)]);
    assert!(error().contains("input_ids"), "{}", error());
    write_ids(&path, &some_ids(3000));
    assert!(error().contains("2048"), "{}", error());
}
