//! `pagella ppl` on small files of ids made here.

use std::path::Path;

use serde_json::Value;

use crate::support::{pagella, text};

/// Writes a safetensors file by hand, so that the test does not use the reader's own writer.
fn write_tensors(path: &Path, tensors: &[(&str, &str, Vec<u8>, usize)]) {
    let shaped = tensors.iter().map(|(name, dtype, bytes, len)| (*name, *dtype, bytes, vec![*len]));
    write_shaped(path, shaped.collect());
}

fn write_shaped(path: &Path, tensors: Vec<(&str, &str, &Vec<u8>, Vec<usize>)>) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, bytes, shape) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        let entry =
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert(name.to_owned(), entry);
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

/// Little-endian bytes of all values.
fn bytes<const N: usize, T: Copy>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| of(value)).collect()
}

#[test]
fn rows_of_ids_are_scored_each_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    let ids = some_ids(40);
    let data = bytes(&ids, i32::to_le_bytes);
    write_shaped(&path, vec![("input_ids", "I32", &data, vec![2, 20])]);
    let both = ppl(&path, &[]);
    assert_eq!(both["tokens"], 38);
    write_ids(&path, &ids[..20]);
    let first = ppl(&path, &[]);
    write_ids(&path, &ids[20..]);
    let second = ppl(&path, &[]);
    assert_eq!(both["rows"], serde_json::json!([first, second]));
    let mean = (first["nll"].as_f64().unwrap() + second["nll"].as_f64().unwrap()) / 2.0;
    assert!((both["nll"].as_f64().unwrap() - mean).abs() < 1e-9);
    write_shaped(&path, vec![("input_ids", "I32", &data, vec![2, 20])]);
    let shown = pagella(&["ppl", "demo", "--ids", text(&path)]).out;
    let head = shown.lines().find(|line| line.trim_start().starts_with("row")).unwrap_or_default();
    assert!(head.contains("perplexity"), "{shown}");
    // Step by step too.
    let stepped = ppl(&path, &["--prefill", "10", "--steps", "5"]);
    assert_eq!((&stepped["tokens"], &stepped["rows"][1]["tokens"]), (&10.into(), &5.into()));
}

#[test]
fn ids_of_every_integer_type_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    let ids: Vec<u8> = (0..30).map(|i| i * 7).collect();
    let found = |dtype, data| {
        write_tensors(&path, &[("input_ids", dtype, data, ids.len())]);
        ppl(&path, &[])
    };
    let wanted = found("U8", ids.clone());
    assert_eq!(found("I64", bytes(&ids, |id| i64::from(id).to_le_bytes())), wanted);
    assert_eq!(found("U64", bytes(&ids, |id| u64::from(id).to_le_bytes())), wanted);
    assert_eq!(found("U32", bytes(&ids, |id| u32::from(id).to_le_bytes())), wanted);
    assert_eq!(found("I32", bytes(&ids, |id| i32::from(id).to_le_bytes())), wanted);
    assert_eq!(found("I16", bytes(&ids, |id| i16::from(id).to_le_bytes())), wanted);
    let most = bytes(&[1, 2, u64::MAX], u64::to_le_bytes);
    write_tensors(&path, &[("input_ids", "U64", most, 3)]);
    pagella(&["ppl", "demo", "--ids", text(&path)]).error(1);
}

#[test]
fn a_reference_fits_exactly_is_all_numbers_and_may_be_held_to_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, expect) = (dir.path().join("ids.safetensors"), dir.path().join("e.safetensors"));
    write_ids(&ids, &some_ids(20));
    let reference = |values: &[f32]| {
        let argmax = bytes(&vec![3i64; values.len()], i64::to_le_bytes);
        let data = bytes(values, f32::to_le_bytes);
        let n = values.len();
        let tensors = [("logprob_full", "F32", data, n), ("argmax_full", "I64", argmax, n)];
        write_tensors(&expect, &tensors);
    };
    let args = ["ppl", "demo", "--ids", text(&ids), "--expect", text(&expect)];
    let with = |more: &[&str]| pagella(&[&args[..], more].concat());
    reference(&[-8.0; 19]);
    let rms = with(&["--json"]).json()["rms_logprob_diff"].as_f64().unwrap();
    with(&["--json", "--max-rms", &(rms * 1.01).to_string()]).json();
    let over = with(&["--json", "--max-rms", &(rms * 0.99).to_string()]);
    assert!(over.error(1).contains("--max-rms"), "{}", over.err);
    assert!(over.out.contains("rms_logprob_diff"), "the report is printed all the same");
    for wrong in ["nan", "-1", "x", "inf"] {
        with(&["--max-rms", wrong]).error(2);
    }
    pagella(&["ppl", "demo", "--ids", text(&ids), "--max-rms", "1"]).error(2);
    for n in [18, 20, 25] {
        reference(&vec![-8.0; n]);
        let error = with(&[]).error(1).to_owned();
        assert!(error.contains(&format!("{n} values")) && error.contains("19 tokens"), "{error}");
    }
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        let mut values = [-8.0; 19];
        values[7] = bad;
        reference(&values);
        let error = with(&["--json"]).error(1).to_owned();
        assert!(error.contains("logprob_full") && error.contains('7'), "{error}");
    }
    write_tensors(&expect, &[("a.logprob_full", "F32", vec![0; 4], 1)]);
    let error = with(&[]).error(1).to_owned();
    assert!(
        error.contains("no tensor logprob_full") && error.contains("a.logprob_full"),
        "{error}"
    );
    assert!(!error.contains("download"), "{error}");
}

#[test]
fn steps_of_nothing_and_beyond_the_ids_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.safetensors");
    write_ids(&path, &some_ids(20));
    let with = |prefill, steps| {
        pagella(&["ppl", "demo", "--ids", text(&path), "--prefill", prefill, "--steps", steps])
    };
    assert!(with("5", "0").error(2).contains("--steps"));
    assert!(with("15", "5").error(1).contains("20"));
    assert_eq!(with("0", "5").code, 0);
}
