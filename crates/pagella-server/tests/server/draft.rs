//! Tokens that are guessed: texts are the same, and answers, counts and cards tell of it.

use serde_json::{Value, json};

use crate::folder::ModelFolder;
use crate::load::LOAD;
use crate::support::{ADMIN, API, Client, TestServer, settings, wait_for};

const CHAT: &str = "/v1/chat/completions";

fn ask(client: &Client, path: &str, extra: Value) -> Value {
    let mut body = json!({"max_tokens": 48, "temperature": 0, "ban_eos_token": true});
    match path {
        CHAT => body["messages"] = json!([{"role": "user", "content": "What is CSS?"}]),
        _ => body["prompt"] = "CSS is".into(),
    }
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    client.post(path, &body).good()
}

fn text(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    let text = choice["text"].as_str().or(choice["message"]["content"].as_str());
    text.or(answer["content"].as_str()).unwrap().to_owned()
}

/// Guesses that were right and wrong, as TabbyAPI tells them; those of a prediction are among them.
fn guessed(answer: &Value) -> (u64, u64) {
    let usage = &answer["usage"];
    let details = &usage["completion_tokens_details"];
    let [accepted, rejected] = ["accepted", "rejected"].map(|how| {
        let tokens = usage[format!("draft_{how}_tokens")].as_u64().unwrap();
        let predicted = details[format!("{how}_prediction_tokens")].as_u64().unwrap();
        assert!(predicted <= tokens, "{usage}");
        tokens
    });
    let (steps, seconds) = (usage["draft_steps"].as_u64(), usage["draft_time"].as_f64());
    assert_eq!(steps.unwrap() > 0, accepted + rejected > 0, "{usage}");
    assert!(steps.unwrap() <= accepted + rejected && seconds.unwrap() >= 0.0, "{usage}");
    (accepted, rejected)
}

/// The same of the prediction of a request.
fn predicted(answer: &Value) -> (u64, u64) {
    let details = &answer["usage"]["completion_tokens_details"];
    let [accepted, rejected] = ["accepted", "rejected"]
        .map(|how| details[format!("{how}_prediction_tokens")].as_u64().unwrap());
    (accepted, rejected)
}

fn series(client: &Client, name: &str) -> f64 {
    let page = client.get("/metrics");
    let line = page.text().lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_prediction_is_checked_and_changes_no_answer() {
    let server = TestServer::demo();
    let client = server.client(API);
    for path in [CHAT, "/v1/completions"] {
        let plain = ask(&client, path, json!({}));
        assert_eq!(guessed(&plain), (0, 0));
        let expected = text(&plain);
        let whole = json!({"type": "content", "content": expected});
        let (start, end) = expected.split_at(expected.len() / 2);
        let parts = json!([{"type": "text", "text": start}, {"type": "text", "text": end}]);
        let parts = json!({"type": "content", "content": parts});
        for prediction in [whole.clone(), parts] {
            let answer =
                ask(&client, path, json!({"prediction": prediction, "num_draft_tokens": 4}));
            assert_eq!(text(&answer), expected);
            assert!(guessed(&answer).0 > 20, "{answer}");
        }
        for off in [
            json!({"draft_tokens": 0}),
            json!({"draft": false}),
            json!({"draft": {"tokens": 0}}),
            json!({"speculative_ngram": false}),
            json!({"speculative_ngram": true}),
            json!({"draft_tokens": -1}),
        ] {
            let mut body = off;
            body["prediction"] = whole.clone();
            let answer = ask(&client, path, body);
            assert_eq!((text(&answer), guessed(&answer)), (expected.clone(), (0, 0)));
        }
        let wrong = json!({"type": "content", "content": expected.replace(' ', "  x ")});
        let answer = ask(&client, path, json!({"prediction": wrong, "draft": {"tokens": 3}}));
        assert_eq!(text(&answer), expected);
        for (field, value, param) in [
            ("prediction", json!({"type": "content"}), "prediction.content"),
            ("prediction", json!("text"), "prediction"),
            ("draft", json!({"tokens": 32}), "draft.tokens"),
            ("draft_tokens", json!(32), "draft_tokens"),
        ] {
            let body = json!({"prompt": "x", "messages": [{"role": "user", "content": "x"}],
                field: value});
            let mut body = body;
            body.as_object_mut().unwrap().remove(if path == CHAT { "prompt" } else { "messages" });
            let refused = client.post(path, &body).refusal();
            assert_eq!((refused.0, refused.2.as_deref()), (400, Some(param)));
        }
    }
    server.wait_idle();
}

#[test]
fn what_was_guessed_is_counted_wherever_counts_are_told() {
    let server = TestServer::demo();
    let (admin, client) = (server.client(ADMIN), server.client(API));
    assert_eq!(series(&admin, "pagella_spec_decode_num_drafts_total"), 0.0);
    let first = "pagella_spec_decode_num_accepted_tokens_per_pos_total";
    assert_eq!(series(&admin, first), 0.0);
    let expected = text(&ask(&client, "/v1/completions", json!({})));
    let prediction = json!({"type": "content", "content": expected});
    let body = json!({"prediction": prediction, "speculative.n_max": 4, "n_predict": 48});
    let answer = ask(&client, "/completion", body);
    assert_eq!(text(&answer), expected);
    let timings = &answer["timings"];
    let (n, accepted) = (timings["draft_n"].as_f64(), timings["draft_n_accepted"].as_f64());
    let (n, accepted) = (n.unwrap(), accepted.unwrap());
    assert!(accepted > 20.0 && n >= accepted, "{timings}");
    server.wait_idle();
    // Counts are as of the engine's last sign of life.
    let told = || admin.get("/v1/stats").good()["engine"]["draft"].clone();
    wait_for("all guesses are counted", || told()["accepted"].as_f64() == Some(accepted));
    let engine = told();
    let (steps, depth) = (engine["steps"].as_f64().unwrap(), engine["depth"].as_f64().unwrap());
    assert_eq!(engine["guessed"].as_f64().unwrap() / steps, depth);
    assert!(depth <= 4.0 && engine["seconds"].as_f64().unwrap() > 0.0, "{engine}");
    assert!(client.get("/v1/stats").good()["engine"]["draft"].is_null());
    for prefix in ["pagella_", "vllm:"] {
        let of = |name: &str| series(&admin, &format!("{prefix}spec_decode_num_{name}"));
        assert_eq!(of("drafts_total"), steps);
        assert_eq!(of("draft_tokens_total"), engine["guessed"].as_f64().unwrap());
        assert_eq!(of("accepted_tokens_total"), accepted);
        assert!(of("accepted_tokens_per_pos_total") > 0.0);
    }
    assert!(series(&admin, "pagella_draft_seconds_total") > 0.0);
    let plain = ask(&client, "/completion", json!({"n_predict": 4, "max_tokens": 4}));
    assert!(plain["timings"].get("draft_n").is_none(), "as llama.cpp has it: {plain}");
}

#[test]
fn a_load_says_how_tokens_are_guessed() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let load = |draft: Value| {
        admin.post(LOAD, &json!({"model_name": "a", "stream": false, "draft_model": draft}))
    };
    for (field, value) in [
        ("draft_gpu_split", json!([4, 4])),
        ("draft_mode", json!("mtp")),
        ("draft_num_tokens", json!(99)),
        ("draft_model_name", json!("../b")),
        ("ngram_match_min", json!(9)),
        ("draft_thing", json!(1)),
    ] {
        let refused = load(json!({ field: value })).refusal();
        let param = format!("draft_model.{field}");
        assert_eq!((refused.0, refused.2), (400, Some(param)), "{field}");
    }
    assert_eq!(folder.opened(), 0);
    load(json!({"draft_mode": "ngram", "draft_num_tokens": 5, "draft_gpu_split": []})).good();
    let expected = text(&ask(&admin, "/v1/completions", json!({"draft_tokens": 0})));
    let prediction = json!({"type": "content", "content": expected});
    let answer = ask(&admin, "/v1/completions", json!({"prediction": prediction}));
    assert_eq!(text(&answer), expected);
    // The very first ids are in no prediction: what follows the prompt is known from the answer before.
    assert!(predicted(&answer).0 > 20, "{answer}");
    assert_eq!((predicted(&answer).1, guessed(&answer).1), (0, 0));
    // Found in what was written before: no prediction is due to the request.
    let answer = ask(&admin, "/v1/completions", json!({}));
    assert!(guessed(&answer).0 > 20, "{answer}");
    assert_eq!(predicted(&answer), (0, 0));
    // The same again is no other load; another number is.
    load(json!({"draft_mode": "ngram", "draft_num_tokens": 5})).good();
    assert_eq!(folder.opened(), 1);
    load(json!({"draft_mode": "disabled"})).good();
    assert_eq!(folder.opened(), 2);
    let answer = ask(&admin, "/v1/completions", json!({"prediction": prediction}));
    assert_eq!(guessed(&answer), (0, 0));
}

#[test]
fn the_file_of_a_model_says_how_its_tokens_are_guessed_and_a_request_says_more() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let file = json!({"draft_model": {"draft_mode": "ngram", "draft_num_tokens": 3}});
    folder.set_file(file, false);
    admin.post(LOAD, &json!({"model_name": "a", "stream": false})).good();
    let options = folder.levers.last.lock().unwrap().clone().unwrap();
    assert_eq!(options.draft.tokens, Some(pagella_server::DraftTokens::Exactly(3)));
    let other = json!({"model_name": "a", "stream": false, "draft_model": {"draft_num_tokens": 6}});
    admin.post(LOAD, &other).good();
    let options = folder.levers.last.lock().unwrap().clone().unwrap();
    assert_eq!(options.draft.tokens, Some(pagella_server::DraftTokens::Exactly(6)));
    assert_eq!(options.draft.mode.map(|mode| mode.name()), Some("ngram"), "of the file");
    folder.set_file(json!({"draft_model": {"draft_mode": "fast"}}), false);
    let refused = admin.post(LOAD, &json!({"model_name": "a", "stream": false})).refusal();
    assert_eq!((refused.0, refused.2.as_deref()), (400, Some("draft_model.draft_mode")));
}
