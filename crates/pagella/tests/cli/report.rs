//! `pagella inspect` and `pagella doctor`.

use serde_json::json;

use crate::support::{demo_copy, pagella, text};

#[test]
fn inspect_knows_the_demo_model() {
    let found = pagella(&["inspect", "demo", "--json"]).json();
    for (field, value) in [
        ("family", json!("llama")),
        ("layers", json!(8)),
        ("hidden", json!(384)),
        ("vocab", json!(4096)),
        ("context", json!(2048)),
        ("chat_template", json!(true)),
        ("experts", json!(null)),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
    let bits = found["bits_per_weight"].as_f64().unwrap();
    assert!((5.5..6.5).contains(&bits), "{bits}");
    assert_eq!(found["formats"][0]["kind"], "EXL2");
    assert_eq!(found["kv_bytes_per_token"], 8 * 2 * 64 * 4);
    let people = pagella(&["inspect", "demo"]);
    assert!(people.out.contains("EXL2") && people.out.contains("q4"), "{}", people.out);
}

#[test]
fn inspect_predicts_what_the_flags_ask_for() {
    let peak = |args: &[&str]| {
        let found = pagella(&[&["inspect", "demo", "--json"], args].concat()).json();
        found["predicted"]["peak_bytes"].as_u64().unwrap()
    };
    let small = peak(&["--cache-tokens", "256"]);
    let large = peak(&["--cache-tokens", "65536"]);
    let quantised = peak(&["--cache-tokens", "65536", "--cache", "q4"]);
    assert!(small < quantised && quantised < large, "{small} {quantised} {large}");
}

#[test]
fn inspect_reads_no_tokenizer_when_there_is_none() {
    let dir = demo_copy();
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    let said = pagella(&["inspect", text(dir.path())]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("no tokenizer.json"), "{}", said.out);
}

#[test]
fn doctor_says_what_is_here() {
    let home = tempfile::tempdir().unwrap();
    let mut command = crate::support::command(&["doctor", "--json"]);
    command.env("HF_HOME", home.path());
    let found = crate::support::feed(command, "").json();
    assert!(found["bandwidth_gb_s"].as_f64().unwrap() > 0.0);
    assert!(found["threads"].as_u64().unwrap() >= 1);
    assert!(!found["isa"].as_str().unwrap().is_empty());
    let cuda = &found["cuda"];
    assert_eq!(cuda["available"] == true, cuda["auto"] != "cpu", "{cuda}");
    assert_eq!(cuda["available"] == true, cuda["reason"].is_null(), "{cuda}");
    assert_eq!(found["hub_models"], json!([]));
    assert!(found["demo"].as_str().unwrap().ends_with("demo"));
    let people = pagella(&["doctor"]);
    assert!(
        people.out.contains("memory speed") && people.out.contains("CUDA driver"),
        "{}",
        people.out
    );
}
