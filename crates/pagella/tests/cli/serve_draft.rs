//! The server with a draft model: found by its name, counted in memory, refused with a reason.

use std::path::Path;

use serde_json::Value;

use crate::serve::{Serving, ask, serve, start_with};
use crate::support::{demo_dir, pagella, text};

fn draft_dir() -> std::path::PathBuf {
    demo_dir().join("draft")
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn post(serving: &Serving, path: &str, asked: &Value) -> Value {
    body(&ask(serving, path, &serving.keys[1], Some(&asked.to_string())))
}

fn get(serving: &Serving, path: &str) -> Value {
    body(&ask(serving, path, &serving.keys[1], None))
}

/// A text, and how many tokens of it were guessed right.
fn written(serving: &Serving) -> (String, u64) {
    let asked = serde_json::json!({"prompt": "The `map()` method of arrays", "max_tokens": 120,
        "temperature": 0, "ban_eos_token": true});
    let answer = post(serving, "/v1/completions", &asked);
    let text = answer["choices"][0]["text"].as_str().unwrap().to_owned();
    (text, answer["usage"]["draft_accepted_tokens"].as_u64().unwrap())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn a_draft_model_guesses_for_the_model_of_the_start_and_changes_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.toml");
    let plain = serve(&["--keys", text(&keys), "--draft-tokens", "off"]);
    let keys_of = plain.keys.clone();
    let (expected, guessed) = written(&plain);
    assert_eq!(guessed, 0);
    let alone = get(&plain, "/v1/model");
    assert!(alone["parameters"]["draft"].is_null());
    drop(plain);
    let args = ["--keys", text(&keys), "--draft", "demo-draft", "--draft-cache", "q8"];
    let mut drafted = serve(&[&args[..], &["--draft-tokens", "4"]].concat());
    drafted.keys = keys_of;
    let (found, guessed) = written(&drafted);
    assert_eq!(found, expected);
    assert!(guessed > 0);
    let card = get(&drafted, "/v1/model");
    let draft = &card["parameters"]["draft"];
    assert_eq!((&draft["id"], &draft["type"]), (&"demo-draft".into(), &"draft".into()));
    assert_eq!(draft["parameters"]["cache_mode"], "q8");
    // Weights and pages of both are counted.
    let of = |card: &Value, what: &str| card["memory"]["devices"][0][what].as_u64().unwrap();
    let more = of(&card, "weights_bytes") - of(&alone, "weights_bytes");
    assert_eq!(Some(more), draft["size_bytes"].as_u64());
    // They are as of the engine's last sign of life, which may be a moment ago.
    let accepted = || get(&drafted, "/v1/stats")["engine"]["draft"]["accepted"].as_u64().unwrap();
    let counted = (0..600).any(|_| {
        let counted = accepted() >= guessed;
        if !counted {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        counted
    });
    assert!(counted, "{} of {guessed}", accepted());
}

#[test]
fn a_request_to_load_names_a_draft_model_and_pays_for_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let models = dir.path().join("models");
    copy(&demo_dir(), &models.join("big"));
    copy(&draft_dir(), &models.join("drafts/small"));
    copy(&draft_dir(), &models.join("drafts/foreign"));
    let foreign = models.join("drafts/foreign/tokenizer.json");
    // One word that the model does not have is enough.
    let tokenizer = std::fs::read_to_string(&foreign).unwrap();
    assert!(tokenizer.contains("<|user|>"));
    std::fs::write(&foreign, tokenizer.replace("<|user|>", "<|other|>")).unwrap();
    let (keys, drafts) = (dir.path().join("keys.toml"), models.join("drafts"));
    let args = ["--keys", text(&keys), "--model-dir", text(&models)];
    let args = [&args[..], &["--draft_model_dir", text(&drafts)]].concat();
    let serving = start_with(&args, &[], "listening on");
    let names = |path: &str| {
        let list = get(&serving, path);
        let cards = list["data"].as_array().unwrap();
        cards.iter().map(|card| card["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("/v1/model/list"), ["big"]);
    assert_eq!(names("/v1/model/draft/list"), ["foreign", "small"]);
    let load = |dry: bool, draft: Value| {
        let asked = serde_json::json!({"model_name": "big", "stream": false, "cache_size": 2048,
            "dry_run": dry, "draft_model": draft});
        post(&serving, "/v1/model/load", &asked)
    };
    let none = load(true, serde_json::json!({}));
    let some = load(true, serde_json::json!({"draft_model_name": "small"}));
    let small =
        load(true, serde_json::json!({"draft_model_name": "small", "draft_cache_mode": "Q4"}));
    let of = |plan: &Value, what: &str| plan["devices"][0][what].as_u64().unwrap();
    assert!(of(&some, "weights_bytes") > of(&none, "weights_bytes"));
    assert!(of(&some, "cache_bytes") > of(&small, "cache_bytes"));
    assert!(of(&small, "cache_bytes") > of(&none, "cache_bytes"));
    for (name, code, part) in [
        ("absent", "model_not_found", "/v1/model/draft/list"),
        ("foreign", "unsupported_value", "<|other|>"),
    ] {
        let refused = load(false, serde_json::json!({"draft_model_name": name}));
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert_eq!(refused["error"]["param"], "draft_model.draft_model_name");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(part) && !message.contains(text(dir.path())), "{message}");
    }
    let loaded = load(false, serde_json::json!({"draft_model_name": "small"}));
    assert_eq!(loaded["status"], "finished", "{loaded}");
    assert_eq!(get(&serving, "/v1/model")["parameters"]["draft"]["id"], "small");
}

#[test]
fn what_is_wrong_with_a_draft_model_is_said_at_the_start() {
    for (args, parts) in [
        (["--draft", "no-such-draft"], ["no-such-draft", "draft model"]),
        (["--draft-tokens", "99"], ["draft_num_tokens", "0 to 31"]),
        (["--draft_mode", "mtp"], ["draft_mode", "ngram"]),
        (["--draft-cache", "q9"], ["draft_cache_mode", "Q8"]),
    ] {
        let all = [&["serve", "demo", "--port", "0", "--disable-auth"], &args[..]].concat();
        let refused = pagella(&all);
        let said = refused.error(2);
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    }
}
