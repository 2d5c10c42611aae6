//! Models over several devices: what is shown, what is refused, and that texts stay the same.

use serde_json::{Value, json};

use crate::serve::{ask, serve, start_command};
use crate::support::{command, pagella, text};

/// Two devices that hold the demo model only together.
const TWO: &str = "cpu:10MiB,cpu:24MiB";
/// What makes the demo model need little more than its weights.
const SMALL: [&str; 4] = ["--cache-tokens", "1024", "--step-tokens", "64"];

fn with<'a>(args: &[&'a str], devices: &'a str) -> Vec<&'a str> {
    [args, &SMALL, &["--devices", devices]].concat()
}

fn layers(plan: &Value) -> Vec<u64> {
    let devices = plan["devices"].as_array().unwrap().iter();
    devices.map(|device| device["layers"].as_u64().unwrap()).collect()
}

#[test]
fn a_plan_is_shown_without_loading_and_followed_when_loading() {
    let shown = pagella(&with(&["inspect", "demo"], TWO));
    for part in
        ["a cache of 1024 tokens, placed:", "cpu:0", "cpu:1", "embedding, layers 0–", "head"]
    {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let found = pagella(&with(&["inspect", "demo", "--json"], TWO)).json();
    let plan = &found["placement"];
    assert_eq!((layers(plan).len(), layers(plan).iter().sum::<u64>()), (2, 8), "{plan}");
    assert!(plan["devices"].as_array().unwrap().iter().all(|d| d["layers"] != json!(0)), "{plan}");
    let ask = ["run", "The map() method", "--raw", "--greedy", "--max-new-tokens", "12"];
    let over_two = pagella(&with(&ask, TWO));
    assert!(over_two.err.contains("placed:") && over_two.err.contains("cpu:1"), "{}", over_two.err);
    let on_one = pagella(&[&ask[..], &SMALL].concat());
    assert_eq!((over_two.code, &over_two.out), (0, &on_one.out));
    assert!(!on_one.err.contains("placed:"), "one whole device needs no plan");
    assert_eq!(pagella(&["inspect", "demo", "--json"]).json()["placement"], Value::Null);
}

#[test]
fn a_manual_split_counts_the_cache_and_says_what_would_fit() {
    let split = |gb: &str| {
        let args = ["inspect", "demo", "--json", "--gpu-split", gb];
        pagella(&with(&args, "cpu:2GiB,cpu:1GiB")).json()["placement"].clone()
    };
    let found = split("0.010,1");
    assert!(layers(&found).iter().all(|layers| *layers > 0), "{found}");
    assert_eq!(found["devices"][0]["free_bytes"], json!(10_737_418), "0.010 GB");
    assert_eq!(layers(&split("auto")), [8, 0], "what is free");
    let problem = split("0.004,0.006")["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("more than cpu:1") && problem.contains("MiB"), "{problem}");
    let run = ["run", "a", "--gpu-split", "1,1,1"];
    let error = pagella(&with(&run, "cpu:2GiB,cpu:1GiB")).error(1).to_owned();
    assert!(error.contains("3 numbers") && error.contains("2 devices"), "{error}");
    let behind = ["inspect", "demo", "--json", "--cpu-layers", "3"];
    let found = pagella(&with(&behind, "cpu:1GiB")).json();
    assert_eq!(layers(&found["placement"]), [5, 3]);
}

#[test]
fn lists_that_cannot_be_are_refused_with_a_sentence() {
    for (devices, code, says) in [
        ("cuda:0,cuda:1", 1, "one GPU"),
        ("cuda:0,cpu", 1, "one GPU"),
        ("cpu,cpu", 2, "how much memory"),
        ("cpu:8", 2, "cpu:2GiB"),
        ("auto,cpu", 2, "auto is one device"),
    ] {
        let said = pagella(&["run", "a", "--device", devices]);
        assert_eq!(said.code, code, "{devices}: {}", said.err);
        assert!(said.err.contains(says), "{devices}: {}", said.err);
    }
    for args in [["--gpu-split", "a,b"], ["--reserve-vram", "-1"], ["--cpu-layers", "few"]] {
        assert_eq!(pagella(&[&["run", "a"][..], &args].concat()).code, 2, "{args:?}");
    }
    let error = pagella(&["run", "a", "--device", "cpu:3MiB"]).error(1).to_owned();
    assert!(error.contains("more than cpu may hold"), "{error}");
    let synthetic = ["bench", "--synthetic", "llama-3.2-1b", "--device", "cpu:1GiB"];
    assert!(pagella(&synthetic).error(1).contains("whole device"));
    let several = ["serve", "demo", "--port", "0", "--max-models", "2", "--device", TWO];
    assert!(pagella(&several).error(2).contains("max_models"));
}

#[test]
fn measuring_gives_the_same_numbers_over_several_devices() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, "The Array type represents an ordered list of values. ".repeat(30))
        .unwrap();
    let args = ["ppl", "demo", "--text", text(&file), "--json", "--step-tokens", "64"];
    let one = pagella(&args).json();
    let two = pagella(&[&args[..], &["--device", "cpu:24MiB,cpu:24MiB"]].concat()).json();
    assert!(one["nll"].is_number() || one["ppl"].is_number(), "{one}");
    for field in ["nll", "ppl", "tokens"] {
        assert_eq!(one[field], two[field], "{field}");
    }
}

#[test]
fn a_server_over_several_devices_says_what_is_where() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.toml");
    let args = ["--device", TWO, "--cache-tokens", "1024", "--step-tokens", "64"];
    let serving = serve(&[&args[..], &["--keys", text(&keys)]].concat());
    let card = ask(&serving, "/v1/model", &serving.keys[1], None);
    let card: Value = serde_json::from_str(card.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let devices = card["memory"]["devices"].as_array().unwrap().clone();
    assert_eq!(devices.len(), 2, "{card}");
    assert!(devices[0]["parts"].as_str().unwrap().starts_with("embedding, layers 0–"), "{card}");
    assert!(devices[1]["parts"].as_str().unwrap().ends_with("head"), "{card}");
    let load = |split: &str| {
        let body =
            format!("{{\"model_name\": \"demo\", \"stream\": false, \"gpu_split\": {split}}}");
        ask(&serving, "/v1/model/load", &serving.keys[1], Some(&body))
    };
    let none = load("[0.002, 0.003]");
    assert!(none.contains("more than cpu:1") && none.contains("503"), "{none}");
    let more = load("[1, 1, 1]");
    assert!(more.contains("3 numbers") && more.contains("\"param\":\"gpu_split\""), "{more}");
    assert!(load("[0.015, 1]").starts_with("HTTP/1.1 200"));
    let several = load("[0.015, 1], \"tensor_parallel\": true");
    assert!(several.contains("2 devices cannot share a layer"), "{several}");
    assert!(several.contains("\"param\":\"tensor_parallel\""), "{several}");
    let only = load("[0, 1], \"tensor_parallel\": true");
    assert!(only.starts_with("HTTP/1.1 200"), "{only}");
}

#[test]
fn tensor_parallel_with_one_device_is_the_whole_model_there_and_is_said() {
    let warning = "tensor_parallel: there is one device";
    let asks = ["--model.tensor_parallel", "true"];
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.toml");
    let serve = ["serve", "demo", "--port", "0", "--keys", text(&keys)];
    let mut one = command(&[&serve[..], &asks, &SMALL].concat());
    one.env("PAGELLA_MODEL_TENSOR_PARALLEL_BACKEND", "nccl");
    drop(start_command(one, warning));
    let two = command(&[&serve[..], &["--device", TWO], &asks, &SMALL].concat());
    drop(start_command(two, "2 devices cannot share a layer"));
}
