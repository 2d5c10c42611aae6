//! Adapters: lists, loads, what requests are answered with, and that nothing is lost or left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pagella_arch::{SpecOptions, load_spec};
use pagella_engine::{JobOptions, JobSpec, SampleOptions};
use pagella_server::settings::ApiServer;
use pagella_server::{Key, Role, Settings};
use pagella_text::{AddBos, Span};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::folder::ModelFolder;
use crate::gate::Gate;
use crate::load::{COMPLETIONS, LOAD};
use crate::restart::kill;
use crate::support::{
    ADMIN, API, Answer, Client, OTHER, TestServer, demo, demo_behind, demo_dir, keys, settings,
    wait_for,
};
use crate::ws::Ws;

const CHAT: &str = "/v1/chat/completions";
const PROMPT: &str = "The Array type represents an ordered list of values. CSS is";
const TOKENS: usize = 10;

/// What an adapter's files say.
struct Files {
    tensors: Vec<(String, [usize; 2], Vec<f32>)>,
    config: Value,
}

impl Files {
    /// An adapter for the demo model; other seeds have other values and ranks.
    fn of(seed: u64) -> Self {
        let rank = 4 + seed as usize % 3;
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut value = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let spec = load_spec(&demo_dir(), &SpecOptions::default()).unwrap();
        let mut tensors = Vec::new();
        for (label, linear) in spec.linear_specs() {
            if !["attn.q", "attn.v", "mlp.down"].iter().any(|end| label.ends_with(end)) {
                continue;
            }
            let shapes = [("A", [rank, linear.in_features]), ("B", [linear.out_features, rank])];
            for (half, shape) in shapes {
                let scale = 1.5 / (shape[1] as f32).sqrt();
                let values = (0..shape[0] * shape[1]).map(|_| scale * value()).collect();
                let name = format!("base_model.model.{}.lora_{half}.weight", linear.bases[0]);
                tensors.push((name, shape, values));
            }
        }
        Files { tensors, config: json!({"peft_type": "LORA", "r": rank, "lora_alpha": rank}) }
    }

    fn write(&self, dir: &Path) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("adapter_config.json"), self.config.to_string()).unwrap();
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, shape, values) in &self.tensors {
            let begin = data.len();
            values.iter().for_each(|value| data.extend(value.to_le_bytes()));
            let offsets = json!([begin, data.len()]);
            header.insert(
                name.clone(),
                json!({"dtype": "F32", "shape": shape, "data_offsets": offsets}),
            );
        }
        let mut header = Value::Object(header).to_string();
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        let length = (header.len() as u64).to_le_bytes();
        let file = [&length[..], header.as_bytes(), &data].concat();
        std::fs::write(dir.join("adapter_model.safetensors"), file).unwrap();
    }
}

/// A folder with the adapters `one`, `two` and `org/three`.
fn loras() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (seed, name) in [(1, "one"), (2, "two"), (3, "org/three")] {
        Files::of(seed).write(&dir.path().join(name));
    }
    dir
}

fn with_loras(dir: &TempDir) -> Settings {
    let mut settings = settings();
    settings.lora.lora_dir = dir.path().to_owned();
    settings.network.api_servers.extend([ApiServer::Ws, ApiServer::Kobold]);
    settings
}

fn server(dir: &TempDir) -> TestServer {
    TestServer::start(with_loras(dir), keys(), Some(demo(64)))
}

fn load(server: &TestServer, body: Value) -> Value {
    server.client(ADMIN).post("/v1/lora/load", &body).good()
}

/// Loads all adapters so that requests can ask for them.
fn add_all(server: &TestServer) {
    let body = json!({"loras": [{"name": "one"}, {"name": "two"}, "org/three"], "mode": "add"});
    assert_eq!(load(server, body)["success"], json!(["one", "two", "org/three"]));
}

fn unload(server: &TestServer, body: Value) -> Value {
    server.client(ADMIN).post("/v1/lora/unload", &body).good()
}

/// Names of the loaded adapters with scale, and whether they are of the default set.
fn loaded(server: &TestServer) -> Vec<(String, f64, bool)> {
    let list = server.client(ADMIN).get("/v1/lora").good();
    let card = |card: &Value| {
        let name = card["id"].as_str().unwrap().to_owned();
        (name, card["scaling"].as_f64().unwrap(), card["default"].as_bool().unwrap())
    };
    list["data"].as_array().unwrap().iter().map(card).collect()
}

fn with(extra: Value) -> Value {
    let mut body = json!({
        "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ban_eos_token": true,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn ask(client: &Client, extra: Value) -> Value {
    client.post(COMPLETIONS, &with(extra)).good()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

fn refusal(answer: &Answer) -> (u16, String, String) {
    let (status, code, param) = answer.refusal();
    (status, code, param.unwrap_or_default())
}

/// What the engine writes without a server, with these adapters by seed.
fn alone(adapters: &[(u64, f32)]) -> String {
    let parts = demo(4);
    let dir = tempfile::tempdir().unwrap();
    let used = adapters.iter().map(|(seed, scale)| {
        let own = dir.path().join(seed.to_string());
        Files::of(*seed).write(&own);
        (parts.worker.load_adapter(&seed.to_string(), &own).unwrap(), *scale)
    });
    let options = JobOptions {
        max_new_tokens: Some(TOKENS),
        sampling: SampleOptions::greedy(),
        adapters: Some(used.collect()),
        ..JobOptions::default()
    };
    let ids = parts.tokenizer.encode(&[Span::Text(PROMPT.to_owned())], AddBos::Auto).unwrap();
    let stream = parts.worker.submit(JobSpec::new(ids, options).unwrap()).unwrap();
    stream.map(|record| record.unwrap().text).collect()
}

#[test]
fn adapters_are_listed_loaded_and_unloaded() {
    let dir = loras();
    let server = server(&dir);
    let names = |key: &'static str, path: &str| -> Vec<String> {
        let list = server.client(key).get(path).good();
        let cards = list["data"].as_array().unwrap().iter();
        cards.map(|card| card["id"].as_str().unwrap().to_owned()).collect()
    };
    for path in ["/v1/loras", "/v1/lora/list"] {
        assert_eq!(names(ADMIN, path), ["one", "org/three", "two"]);
        assert_eq!(names(API, path), [""; 0]);
    }
    assert_eq!(names(ADMIN, "/v1/lora"), [""; 0]);
    let forbidden = server.client(API).post("/v1/lora/load", &json!({"loras": ["one"]}));
    assert_eq!(forbidden.status, 403);
    let body = json!({"loras": [{"name": "two", "scaling": 0.8}], "skip_queue": true});
    let told = load(&server, body);
    assert_eq!(told, json!({"success": ["two"], "failure": [], "errors": {}}));
    load(&server, json!({"loras": ["one"], "mode": "add"}));
    let expected = [("two".to_owned(), 0.8, true), ("one".to_owned(), 1.0, false)];
    assert_eq!(loaded(&server), expected);
    assert_eq!(names(API, "/v1/loras"), ["two", "one"]);
    assert_eq!(names(ADMIN, "/v1/loras"), ["two", "one", "org/three"]);
    let card = &server.client(API).get("/v1/lora").good()["data"][0];
    assert_eq!((&card["object"], &card["owned_by"]), (&json!("lora"), &json!("pagella")));
    assert!(card["adapter"].as_str().unwrap().starts_with("two@"), "{card}");
    assert!(card["created"].as_u64().unwrap() > 0 && card["size_bytes"].as_u64().unwrap() > 0);
    // Those of a load are the default set; the others stay loaded.
    load(&server, json!({"loras": [{"name": "org/three", "scale": -1}]}));
    let defaults: Vec<bool> = loaded(&server).iter().map(|(_, _, default)| *default).collect();
    assert_eq!(defaults, [false, false, true]);
    let told = unload(&server, json!({"loras": ["one", "absent"]}));
    assert_eq!((&told["success"], &told["failure"]), (&json!(["one"]), &json!(["absent"])));
    assert!(told["errors"]["absent"].as_str().unwrap().contains("not loaded"));
    assert_eq!(unload(&server, json!({}))["success"], json!(["two", "org/three"]));
    assert_eq!(loaded(&server), []);
    assert_eq!(
        server.client(ADMIN).send("POST", "/v1/lora/unload", None).good()["success"],
        json!([])
    );
    assert_eq!(server.stats().adapter_bytes, 0);
}

#[test]
fn a_load_with_another_scale_changes_the_scale_alone_and_other_files_are_loaded() {
    let dir = loras();
    let server = server(&dir);
    load(&server, json!({"loras": ["one"]}));
    let label = || server.client(API).get("/v1/lora").good()["data"][0]["adapter"].clone();
    let (before, bytes) = (label(), server.stats().adapter_bytes);
    let serial = ask(&server.client(API), json!({}));
    load(&server, json!({"loras": [{"name": "one", "scaling": 2}]}));
    assert_eq!((label(), server.stats().adapter_bytes), (before.clone(), bytes));
    assert_eq!(loaded(&server), [("one".to_owned(), 2.0, true)]);
    assert_ne!(text(&ask(&server.client(API), json!({}))), text(&serial));
    Files::of(2).write(&dir.path().join("one"));
    load(&server, json!({"loras": ["one"]}));
    assert_ne!(label(), before);
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[(2, 1.0)]));
    assert_eq!(server.stats().adapters, 1);
    // For another scale the files are not needed.
    std::fs::remove_dir_all(dir.path().join("one")).unwrap();
    assert_eq!(
        load(&server, json!({"loras": [{"name": "one", "scaling": 0.5}]}))["failure"],
        json!([])
    );
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[(2, 0.5)]));
}

#[test]
fn a_request_has_the_adapters_it_names_and_what_the_library_writes() {
    let dir = loras();
    let server = server(&dir);
    add_all(&server);
    let client = server.client(API);
    let plain = ask(&client, json!({}));
    assert_eq!(text(&plain), alone(&[]));
    assert_eq!(plain.get("adapter"), None);
    let (one, two) = (alone(&[(1, 1.0)]), alone(&[(2, 0.5)]));
    assert!(one != two && one != text(&plain));
    for (choice, expected) in [
        (json!("one"), &one),
        (json!({"name": "one"}), &one),
        (json!([{"name": "one", "scaling": 1.0}]), &one),
        (json!([{"id": 0, "scale": 1}]), &one),
        (json!({"name": "two", "weight": 0.5}), &two),
        (json!([{"id": 1, "scale": 0.5}, {"id": 0, "scale": 0}]), &two),
    ] {
        let answer = ask(&client, json!({ "lora": choice }));
        assert_eq!(text(&answer), expected.as_str(), "{choice}");
        let name = if expected == &one { "one@" } else { "two@" };
        let label = answer["adapter"].as_str().unwrap();
        assert!(label.starts_with(name) && label.len() == 16, "{label}");
        assert_ne!(answer["system_fingerprint"], plain["system_fingerprint"]);
    }
    for alias in ["adapter", "loras"] {
        assert_eq!(text(&ask(&client, json!({ alias: ["one"] }))), one);
    }
    let both = ask(&client, json!({"lora": ["one", {"name": "two", "scale": 0.5}]}));
    assert_eq!(text(&both), alone(&[(1, 1.0), (2, 0.5)]));
    assert!(both["adapter"].as_str().unwrap().contains(",two@"));
    let stream = client.stream(COMPLETIONS, &with(json!({"lora": "one", "stream": true}))).rest();
    assert!(stream.iter().all(|chunk| chunk["adapter"].as_str().unwrap().starts_with("one@")));
    // Over the default set.
    load(&server, json!({"loras": [{"name": "two", "scaling": 0.5}]}));
    assert_eq!(text(&ask(&client, json!({}))), two);
    assert_eq!(text(&ask(&client, json!({"lora": "one"}))), one);
    assert_eq!(text(&ask(&client, json!({"lora": "two"}))), two, "as it was loaded");
    assert_eq!(ask(&client, json!({"lora": []}))["choices"], plain["choices"]);
}

#[test]
fn requests_with_other_adapters_at_once_write_what_each_writes_alone() {
    let dir = loras();
    let server = server(&dir);
    add_all(&server);
    let sets: [&[(u64, f32)]; 6] =
        [&[], &[(1, 1.0)], &[(2, 0.5)], &[(3, -1.0)], &[(1, 1.0), (2, 0.5)], &[(1, 0.5)]];
    let names = ["one", "two", "org/three"];
    let expected: Vec<String> = sets.iter().map(|set| alone(set)).collect();
    std::thread::scope(|scope| {
        for round in 0..2 {
            for (set, expected) in sets.iter().zip(&expected) {
                let client = server.client(if round == 0 { API } else { OTHER });
                scope.spawn(move || {
                    let named = |(seed, scale): &(u64, f32)| {
                        json!({"name": names[*seed as usize - 1], "scale": scale})
                    };
                    let list: Vec<Value> = set.iter().map(named).collect();
                    assert_eq!(text(&ask(&client, json!({ "lora": list }))), expected, "{set:?}");
                });
            }
        }
    });
    server.wait_idle();
}

#[test]
fn a_switch_of_adapter_finds_nothing_in_the_cache() {
    let dir = loras();
    let server = server(&dir);
    add_all(&server);
    let prompt = "Cascading style sheets describe pages. ".repeat(120);
    let cached = |lora: Value| {
        let answer = ask(&server.client(API), json!({"prompt": prompt, "lora": lora}));
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (cached > 0, answer["choices"][0]["text"].clone())
    };
    let choices = [json!([]), json!("one"), json!("two"), json!({"name": "one", "scale": 0.5})];
    let first: Vec<_> = choices.iter().map(|choice| cached(choice.clone())).collect();
    for (choice, (found, text)) in choices.iter().zip(first) {
        assert!(!found, "{choice}");
        assert_eq!(cached(choice.clone()), (true, text), "{choice}");
    }
    unload(&server, json!({"loras": ["one"]}));
    load(&server, json!({"loras": ["one"], "mode": "add"}));
    assert!(!cached(json!("one")).0, "another load is another adapter");
}

#[test]
fn unknown_adapters_are_not_found_and_names_lead_nowhere_else() {
    let dir = loras();
    let outside = tempfile::tempdir().unwrap();
    Files::of(1).write(&outside.path().join("secret"));
    let server = server(&dir);
    let (api, admin) = (server.client(API), server.client(ADMIN));
    add_all(&server);
    for choice in [json!("three"), json!({"name": "x"}), json!([{"id": 9}]), json!("../one")] {
        let refused = refusal(&api.post(COMPLETIONS, &with(json!({ "lora": choice }))));
        assert_eq!((refused.0, refused.1.as_str()), (404, "lora_not_found"), "{choice}");
        assert!(refused.2.starts_with("lora"));
    }
    for (choice, param) in [
        (json!(1), "lora"),
        (json!(true), "lora"),
        (json!(["one", "one"]), "lora[1]"),
        (json!(["one", {"id": 0}]), "lora"),
        (json!({"name": "one", "scale": 9}), "lora.scale"),
        (json!({"name": "one", "scales": 1}), "lora.scales"),
        (json!(["a", "b", "c", "d", "e"]), "lora"),
        (json!([["one"]]), "lora[0]"),
    ] {
        let refused = refusal(&api.post(COMPLETIONS, &with(json!({ "lora": choice }))));
        assert_eq!((refused.0, refused.2.as_str()), (400, param), "{choice}: {}", refused.1);
    }
    let absolute = outside.path().join("secret");
    let absolute = absolute.to_str().unwrap();
    for name in
        ["../x", "..", "/etc", "a/../../x", "C:x", "nul", "a\\b", "a\u{0}b", "a:b", absolute]
    {
        let refused = admin.post("/v1/lora/load", &json!({"loras": [{"name": name}]}));
        assert_eq!((refused.status, refused.refusal().1.as_str()), (400, "out_of_range"), "{name}");
        let refused = admin.post("/v1/lora/unload", &json!({"loras": [name]}));
        assert_eq!(refused.status, 400, "{name}");
        let body = json!({"lora_name": "x", "lora_path": name});
        let refused = refusal(&admin.post("/v1/load_lora_adapter", &body));
        assert_eq!((refused.0, refused.2.as_str()), (400, "lora_path"), "{name}");
    }
    let absent = load(&server, json!({"loras": ["absent", "org"]}));
    assert_eq!((&absent["success"], &absent["failure"]), (&json!([]), &json!(["absent", "org"])));
    for body in [json!({}), json!({"loras": []}), json!({"loras": 1}), json!({"loras": [1]})] {
        assert_eq!(admin.post("/v1/lora/load", &body).status, 400, "{body}");
    }
    let refused = refusal(&admin.post("/v1/lora/load", &json!({"loras": ["one"], "model": "x"})));
    assert_eq!((refused.0, refused.2.as_str()), (404, "model"));
    assert_eq!(loaded(&server).len(), 3);
}

#[test]
fn damaged_adapters_say_what_is_wrong_and_change_nothing() {
    let dir = loras();
    let server = server(&dir);
    load(&server, json!({"loras": ["one"]}));
    let (before, bytes) = (loaded(&server), server.stats().adapter_bytes);
    type Damage = fn(&mut Files);
    let damaged: [(&str, Damage); 7] = [
        ("shapes", |files| files.tensors[0].1.swap(0, 1)),
        ("rank", |files| files.config["r"] = 3.into()),
        ("nan", |files| files.tensors[3].2[5] = f32::NAN),
        ("half", |files| drop(files.tensors.remove(1))),
        ("alpha", |files| files.config["lora_alpha"] = 1e30.into()),
        ("none", |files| files.tensors.clear()),
        ("kind", |files| files.config["peft_type"] = "PREFIX_TUNING".into()),
    ];
    for (name, damage) in damaged {
        let mut files = Files::of(2);
        damage(&mut files);
        files.write(&dir.path().join(name));
    }
    let file = std::fs::read(dir.path().join("two/adapter_model.safetensors")).unwrap();
    for (name, bytes) in
        [("cut", &file[..file.len() / 2]), ("pickle", b"\x80\x04\x95abc"), ("empty", b"")]
    {
        Files::of(2).write(&dir.path().join(name));
        std::fs::write(dir.path().join(name).join("adapter_model.safetensors"), bytes).unwrap();
    }
    std::fs::create_dir(dir.path().join("bare")).unwrap();
    let names = [
        "shapes", "rank", "nan", "half", "alpha", "none", "kind", "cut", "pickle", "empty", "bare",
    ];
    for name in names {
        let told = load(&server, json!({"loras": [name]}));
        assert_eq!((&told["success"], &told["failure"]), (&json!([]), &json!([name])), "{told}");
        let why = told["errors"][name].as_str().unwrap();
        assert!(why.len() > 20 && !why.contains('\n'), "{name}: {why}");
        assert!(!why.contains(dir.path().to_str().unwrap()), "{name}: {why}");
        let one = json!({"lora_name": name, "lora_path": name});
        assert_eq!(server.client(ADMIN).post("/v1/load_lora_adapter", &one).status, 400, "{name}");
    }
    // What is well beside it is loaded.
    let told = load(&server, json!({"loras": ["nan", "two"], "mode": "add"}));
    assert_eq!((&told["success"], &told["failure"]), (&json!(["two"]), &json!(["nan"])));
    unload(&server, json!({"loras": ["two"]}));
    assert_eq!((loaded(&server), server.stats().adapter_bytes), (before, bytes));
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[(1, 1.0)]));
}

#[test]
fn a_load_that_fails_at_any_part_changes_nothing() {
    let dir = loras();
    let gate = Arc::new(Gate::default());
    let parts = demo_behind(gate.clone(), 64);
    let server = TestServer::start(with_loras(&dir), keys(), Some(parts));
    load(&server, json!({"loras": ["one"]}));
    let (before, bytes) = (loaded(&server), server.stats().adapter_bytes);
    let mut stream =
        server.client(API).stream(COMPLETIONS, &with(json!({"max_tokens": 200, "stream": true})));
    stream.until_text();
    for part in 0.. {
        gate.fail_part(part);
        let told = load(&server, json!({"loras": ["two"]}));
        if told["failure"] == json!([]) {
            assert!(part > 2, "there are several parts");
            break;
        }
        assert!(told["errors"]["two"].as_str().unwrap().contains("memory"), "{told}");
        assert_eq!((loaded(&server), server.stats().adapter_bytes), (before.clone(), bytes));
    }
    gate.fail_part(usize::MAX);
    let last = stream.rest().pop().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[(2, 1.0)]));
}

#[test]
fn a_stream_keeps_the_adapter_that_is_unloaded_and_its_memory_comes_back() {
    let dir = loras();
    let server = server(&dir);
    load(&server, json!({"loras": ["one"]}));
    let body = with(json!({"max_tokens": 120}));
    let expected = server.client(API).post(COMPLETIONS, &body).good();
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let mut stream = server.client(API).stream(COMPLETIONS, &streamed);
    let first = stream.until(|chunk| chunk["choices"][0]["text"] != "");
    unload(&server, json!({}));
    let refused = refusal(&server.client(API).post(COMPLETIONS, &with(json!({"lora": "one"}))));
    assert_eq!((refused.0, refused.1.as_str()), (404, "lora_not_found"));
    let rest = stream.rest();
    let pieces = std::iter::once(&first).chain(&rest);
    let written: String = pieces.filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(written, text(&expected));
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[]));
    wait_for("the adapter's memory", || server.stats().adapter_bytes == 0);
}

#[test]
fn every_dialect_chooses_adapters_and_tells_which() {
    let dir = loras();
    let server = server(&dir);
    add_all(&server);
    let api = server.client(API);
    let messages = json!([{"role": "user", "content": "What is CSS?"}]);
    let bodies = [
        (CHAT, json!({"messages": messages, "max_tokens": TOKENS})),
        (COMPLETIONS, json!({"prompt": PROMPT, "max_tokens": TOKENS})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": TOKENS, "model": "demo"})),
        (
            "/v1/responses",
            json!({"input": "What is CSS?", "max_output_tokens": TOKENS, "store": false}),
        ),
        ("/completion", json!({"prompt": PROMPT, "n_predict": TOKENS})),
        ("/api/v1/generate", json!({"prompt": PROMPT, "max_length": TOKENS})),
        (
            "/api/chat",
            json!({"messages": messages, "stream": false, "options": {"num_predict": TOKENS}}),
        ),
        (
            "/api/generate",
            json!({"prompt": "CSS?", "stream": false, "options": {"num_predict": TOKENS}}),
        ),
    ];
    /// What differs between two answers to the same request.
    fn written(answer: &Value) -> String {
        let texts = ["choices", "content", "output", "results", "message", "response"];
        let of = |name: &&str| answer.get(*name).map(ToString::to_string);
        let text: String = texts.iter().filter_map(of).collect();
        // Ids are random.
        let marked =
            text.split("\"id\":\"").map(|part| part.split_once('"').map_or(part, |(_, rest)| rest));
        if text.contains("\"id\":\"") { marked.collect() } else { text }
    }
    for (path, body) in bodies {
        let post = |extra: Value| {
            let mut body = body.clone();
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            if path.starts_with("/api/") && path != "/api/v1/generate" {
                body["options"]["temperature"] = 0.into();
            } else {
                body["temperature"] = 0.into();
            }
            api.post(path, &body)
        };
        let plain = post(json!({})).good();
        let one = post(json!({"lora": "one"})).good();
        assert!(one["adapter"].as_str().unwrap().starts_with("one@"), "{path}: {one}");
        assert!(plain["adapter"].is_null(), "{path}: {plain}");
        assert_ne!(written(&plain), written(&one), "{path}");
        let again = post(json!({"adapter": {"name": "one", "weight": 1}})).good();
        assert_eq!(written(&again), written(&one), "{path}");
        assert_eq!(post(json!({"lora": "absent"})).status, 404, "{path}");
        for neutral in [json!(null), json!(""), json!({}), json!([])] {
            let answer = post(json!({ "lora": neutral })).good();
            assert_eq!(written(&answer), written(&plain), "{path}: {neutral}");
        }
        let named = post(json!({"model": "demo:one"})).good();
        assert_eq!(written(&named), written(&one), "{path}");
    }
    let ask = json!({"options": {"lora": "one"}, "lora": "two", "prompt": "x", "stream": false});
    assert_eq!(api.post("/api/generate", &ask).status, 400);
    let mut ws = Ws::open(&api);
    let message = json!({
        "action": "infer", "text": PROMPT, "max_new_tokens": TOKENS, "stream": false,
        "temperature": 0, "lora": "one",
    });
    let last = ws.ask(&message);
    assert_eq!(last["response"], alone(&[(1, 1.0)]), "{last}");
    assert!(last["adapter"].as_str().unwrap().starts_with("one@"));
}

#[test]
fn neutral_values_leave_the_default_set() {
    let dir = loras();
    let server = server(&dir);
    load(&server, json!({"loras": ["one"]}));
    let expected = alone(&[(1, 1.0)]);
    for neutral in [json!(null), json!(""), json!({}), json!({"name": "", "scale": null})] {
        for name in ["lora", "adapter", "loras"] {
            let answer = ask(&server.client(API), json!({ name: neutral }));
            assert_eq!(text(&answer), expected, "{name}: {neutral}");
        }
    }
    assert_eq!(text(&ask(&server.client(API), json!({"lora": []}))), alone(&[]));
}

#[test]
fn hundreds_of_loads_under_traffic_leave_nothing() {
    let dir = loras();
    let server = server(&dir);
    let expected = [alone(&[(1, 1.0)]), alone(&[(2, 1.0)])];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (name, expected) in ["one", "two"].into_iter().zip(&expected) {
            let (client, stop) = (server.client(API), &stop);
            scope.spawn(move || {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) || answered == 0 {
                    let answer = client.post(COMPLETIONS, &with(json!({ "lora": name })));
                    match answer.status {
                        200 => assert_eq!(text(&answer.good()), expected),
                        _ => assert_eq!(answer.refusal().1, "lora_not_found"),
                    }
                    answered += usize::from(answer.status == 200);
                }
            });
        }
        for cycle in 0..120 {
            let mode = if cycle % 3 == 0 { "default" } else { "add" };
            let told = load(&server, json!({"loras": ["one", "two"], "mode": mode}));
            assert_eq!(told["failure"], json!([]), "{told}");
            if cycle % 4 == 0 {
                unload(&server, json!({"loras": ["one"]}));
            }
            unload(&server, json!({}));
        }
        add_all(&server);
        stop.store(true, Ordering::Relaxed);
    });
    unload(&server, json!({}));
    server.wait_idle();
    let stats = || server.client(ADMIN).get("/v1/stats").good()["engine"].clone();
    wait_for("all adapters' memory", || stats()["adapter_bytes"] == 0);
    assert_eq!(stats()["adapters"], 0);
    assert_eq!(text(&ask(&server.client(API), json!({}))), alone(&[]));
}

#[test]
fn an_adapter_is_a_model_in_vllms_form() {
    let dir = loras();
    let server = server(&dir);
    let (api, admin) = (server.client(API), server.client(ADMIN));
    let body = json!({"lora_name": "poet", "lora_path": "org/three"});
    let told = admin.post("/v1/load_lora_adapter", &body);
    assert_eq!(
        (told.status, told.text()),
        (200, "Success: LoRA adapter 'poet' added successfully.")
    );
    assert_eq!(api.post("/v1/load_lora_adapter", &body).status, 403);
    let absent = json!({"lora_name": "x", "lora_path": "absent"});
    assert_eq!(refusal(&admin.post("/v1/load_lora_adapter", &absent)).1, "lora_not_found");
    let cards = api.get("/v1/models").good();
    let card = cards["data"].as_array().unwrap().iter().find(|card| card["id"] == "demo:poet");
    let card = card.unwrap_or_else(|| panic!("{cards}"));
    assert_eq!((&card["type"], &card["parent"]), (&json!("lora"), &json!("demo")));
    assert_eq!(api.get("/v1/models/demo:poet").good()["type"], "lora");
    let expected = alone(&[(3, 1.0)]);
    for name in ["poet", "demo:poet"] {
        let answer = ask(&api, json!({ "model": name }));
        assert_eq!((text(&answer), &answer["model"]), (expected.as_str(), &json!("demo")));
        assert!(answer["adapter"].as_str().unwrap().starts_with("poet@"));
    }
    assert_eq!(text(&ask(&api, json!({"model": "demo"}))), alone(&[]));
    let both = refusal(&api.post(COMPLETIONS, &with(json!({"model": "poet", "lora": []}))));
    assert_eq!((both.0, both.2.as_str()), (400, "lora"));
    let unknown = refusal(&api.post(COMPLETIONS, &with(json!({"model": "demo:x"}))));
    assert_eq!((unknown.0, unknown.1.as_str()), (404, "lora_not_found"));
    let vectors = json!({"model": "poet", "input": "x", "pooling": "mean"});
    assert_eq!(refusal(&api.post("/v1/embeddings", &vectors)).2, "model");
    assert_eq!(api.post("/v1/token/encode", &json!({"text": "x", "model": "poet"})).status, 200);
    let name = json!({"lora_name": "poet"});
    assert_eq!(admin.post("/v1/unload_lora_adapter", &name).status, 200);
    assert_eq!(refusal(&admin.post("/v1/unload_lora_adapter", &name)).1, "lora_not_found");
}

#[test]
fn llamacpp_scales_the_default_set_by_number() {
    let dir = loras();
    let server = server(&dir);
    let (api, admin) = (server.client(API), server.client(ADMIN));
    add_all(&server);
    let scales = |client: &Client| client.get("/lora-adapters").good();
    let list = |scales: [f64; 3]| {
        let names = ["one", "two", "org/three"];
        let one = |(id, scale): (usize, f64)| json!({"id": id, "path": names[id], "scale": scale});
        Value::from(scales.into_iter().enumerate().map(one).collect::<Vec<_>>())
    };
    assert_eq!(scales(&api), list([0.0, 0.0, 0.0]));
    let set = |body: Value| admin.post("/lora-adapters", &body);
    assert_eq!(set(json!([{"id": 1, "scale": 0.5}])).good(), json!({"success": true}));
    assert_eq!(scales(&api), list([0.0, 0.5, 0.0]));
    assert_eq!(text(&ask(&api, json!({}))), alone(&[(2, 0.5)]));
    for (body, status) in [
        (json!({}), 400),
        (json!([1]), 400),
        (json!([{"id": 1}]), 400),
        (json!([{"scale": 1}]), 400),
        (json!([{"name": "one", "scale": 1}]), 400),
        (json!([{"id": 9, "scale": 1}]), 404),
        (json!([{"id": 0, "scale": 99}]), 400),
    ] {
        assert_eq!(set(body.clone()).status, status, "{body}");
        assert_eq!(scales(&api), list([0.0, 0.5, 0.0]));
    }
    assert_eq!(api.post("/lora-adapters", &json!([])).status, 403);
    set(json!([])).good();
    assert_eq!(text(&ask(&api, json!({}))), alone(&[]));
    // Numbers stay when others go.
    unload(&server, json!({"loras": ["one"]}));
    assert_eq!(scales(&api)[0]["id"], 1);
    let by_number = ask(&api, json!({"lora": [{"id": 2, "scale": 1}]}));
    assert_eq!(text(&by_number), alone(&[(3, 1.0)]));
}

#[test]
fn adapters_come_with_a_load_and_come_back_with_the_model() {
    let dir = loras();
    let folder = ModelFolder::with(&["a"]);
    let mut own = with_loras(&dir);
    own.model.idle_unload = Duration::from_secs(3600);
    let server = TestServer::with_folder(own, &folder);
    let (api, admin) = (server.client(API), server.client(ADMIN));
    let refused = |loras: Value| {
        let body = json!({"model_name": "a", "stream": false, "loras": loras});
        let (status, code, param) = refusal(&admin.post(LOAD, &body));
        (status, code, param)
    };
    let (status, code, param) = refused(json!([{"name": "absent"}]));
    assert_eq!((status, code.as_str(), param.as_str()), (404, "lora_not_found", "loras"));
    assert_eq!(refused(json!([{"name": "../x"}])).0, 400);
    Files { tensors: Vec::new(), ..Files::of(1) }.write(&dir.path().join("none"));
    let (status, _, param) = refused(json!(["none"]));
    assert_eq!((status, param.as_str()), (400, "loras"));
    wait_for("the model's end", || folder.alive() == 0);
    let loras = json!([{"name": "one", "scaling": 0.5}]);
    let body = json!({"model_name": "a", "stream": false, "loras": loras});
    admin.post(LOAD, &body).good();
    assert_eq!(text(&ask(&api, json!({}))), alone(&[(1, 0.5)]));
    load(&server, json!({"loras": ["two"], "mode": "add"}));
    let opened = folder.opened();
    admin.post(LOAD, &json!({"model_name": "a", "stream": false})).good();
    assert_eq!(folder.opened(), opened, "a load that says nothing of adapters changes none");
    kill(&server);
    let expected = [("one".to_owned(), 0.5, true), ("two".to_owned(), 1.0, false)];
    wait_for("the engine to come back", || {
        folder.opened() == opened + 1 && api.get("/health").status == 200
    });
    assert_eq!(loaded(&server), expected);
    assert_eq!(text(&ask(&api, json!({}))), alone(&[(1, 0.5)]));
    assert_eq!(text(&ask(&api, json!({"model": "two"}))), alone(&[(2, 1.0)]));
}

#[test]
fn a_model_that_was_given_up_comes_back_for_its_adapter() {
    let dir = loras();
    let folder = ModelFolder::with(&["a"]);
    let mut own = with_loras(&dir);
    own.model.idle_unload = Duration::from_millis(300);
    let server = TestServer::with_folder(own, &folder);
    let (api, admin) = (server.client(API), server.client(ADMIN));
    let body = json!({"model_name": "a", "stream": false, "loras": ["one"]});
    admin.post(LOAD, &body).good();
    for (name, expected) in [("a:one", alone(&[(1, 1.0)])), ("one", alone(&[(1, 1.0)]))] {
        wait_for("the model to be given up", || folder.alive() == 0);
        assert_eq!(api.get("/v1/lora").good()["data"], json!([]));
        assert_eq!(text(&ask(&api, json!({ "model": name }))), expected);
    }
}

#[test]
fn keys_see_the_adapters_they_may_ask_for() {
    let dir = loras();
    let mut keys = keys();
    let only = |models: &[&str]| {
        let mut key = Key::new("carol", Role::Api);
        key.models = models.iter().map(|&name| name.to_owned()).collect();
        key
    };
    keys.add("base-secret", only(&["demo"]));
    keys.add("poet-secret", only(&["demo:one"]));
    let server = TestServer::start(with_loras(&dir), keys, Some(demo(64)));
    add_all(&server);
    let base = server.client("base-secret");
    assert_eq!(base.post(COMPLETIONS, &with(json!({"lora": "one"}))).status, 404);
    assert_eq!(base.post(COMPLETIONS, &with(json!({"model": "demo:one"}))).status, 404);
    assert_eq!(base.get("/v1/lora").good()["data"], json!([]));
    assert_eq!(text(&ask(&base, json!({}))), alone(&[]));
    let poet = server.client("poet-secret");
    assert_eq!(text(&ask(&poet, json!({"model": "demo:one"}))), alone(&[(1, 1.0)]));
    assert_eq!(poet.post(COMPLETIONS, &with(json!({"model": "demo:two"}))).status, 404);
    assert_eq!(poet.post(COMPLETIONS, &with(json!({"model": "demo"}))).status, 404);
    assert_eq!(poet.get("/lora-adapters").status, 404);
}

#[test]
fn jobs_counts_and_stats_tell_of_adapters() {
    let dir = loras();
    let gate = Arc::new(Gate::default());
    let parts = demo_behind(gate.clone(), 64);
    let server = TestServer::start(with_loras(&dir), keys(), Some(parts));
    let (api, admin) = (server.client(API), server.client(ADMIN));
    add_all(&server);
    let info = || {
        let page = admin.get("/metrics");
        let mut lines = page.text().lines();
        lines.find(|line| line.starts_with("vllm:lora_requests_info{")).unwrap().to_owned()
    };
    assert!(info().contains("running_lora_adapters=\"\""), "{}", info());
    let body = with(json!({"max_tokens": 200, "stream": true, "lora": ["two", "one"]}));
    let mut stream = api.stream(COMPLETIONS, &body);
    stream.until_text();
    assert!(info().contains("max_lora=\"256\",running_lora_adapters=\"one,two\""), "{}", info());
    let map = admin.get("/v1/cache/pages").good();
    assert_eq!(map["jobs"][0]["lora"], "two,one", "{map}");
    assert_eq!(
        admin.get("/v1/requests").good().to_string().matches("\"lora\":\"two,one\"").count(),
        1
    );
    drop(stream);
    wait_for("counts", || admin.get("/v1/stats").good()["engine"]["adapters"] == 3);
    server.wait_idle();
}

#[test]
fn a_default_set_has_at_most_four_adapters() {
    let dir = loras();
    let server = server(&dir);
    let told = load(&server, json!({"loras": ["one", "two", "org/three"]}));
    assert_eq!(told["success"].as_array().unwrap().len(), 3);
    let more: Vec<Value> = (0..5).map(|n| json!(format!("x{n}"))).collect();
    let refused = refusal(&server.client(ADMIN).post("/v1/lora/load", &json!({ "loras": more })));
    assert_eq!((refused.0, refused.2.as_str()), (400, "loras"));
    assert_eq!(loaded(&server).len(), 3);
}
