//! Kobold's interface, as its clients use it.

use pagella_server::settings::ApiServer;
use serde_json::{Map, Value, json};

use crate::support::{ADMIN, API, Client, OTHER, TestServer, demo, keys, settings, wait_for};

const GENERATE: &str = "/api/v1/generate";
const STREAM: &str = "/api/extra/generate/stream";
const CHECK: &str = "/api/extra/generate/check";
const ABORT: &str = "/api/extra/abort";

fn server() -> TestServer {
    let mut settings = settings();
    settings.network.api_servers.push(ApiServer::Kobold);
    TestServer::start(settings, keys(), Some(demo(16)))
}

fn body(extra: Value) -> Value {
    let mut body = json!({"prompt": "CSS is", "max_length": 12, "temperature": 0});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn long(extra: Value) -> Value {
    let mut all = extra;
    all["max_length"] = 1500.into();
    all["use_default_badwordsids"] = true.into();
    body(all)
}

fn text(client: &Client, extra: Value) -> String {
    let value = client.post(GENERATE, &body(extra)).good();
    value["results"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_prompt_is_continued_as_completions_do() {
    let server = server();
    let client = server.client(API);
    let same = json!({"prompt": "CSS is", "max_tokens": 12, "temperature": 0});
    let same = client.post("/v1/completions", &same).good();
    let value = client.post(GENERATE, &body(json!({}))).good();
    assert_eq!(value["results"][0]["text"], same["choices"][0]["text"]);
    assert_eq!(value["results"][0]["finish_reason"], "length");
    assert_eq!(value["results"][0]["completion_tokens"], 12);
    assert_eq!(client.post("/api/latest/generate", &body(json!({}))).good(), value);
    let many = client.post(GENERATE, &body(json!({"n": 3}))).good();
    assert_eq!(many["results"].as_array().unwrap().len(), 3);
    server.wait_idle();
}

#[test]
fn a_stream_says_the_same_in_messages() {
    let server = server();
    let client = server.client(API);
    let whole = text(&client, json!({}));
    let events = client.post(STREAM, &body(json!({}))).named();
    assert!(events.iter().all(|(name, _)| name == "message"), "{events:?}");
    let joined: String = events.iter().map(|(_, data)| data["token"].as_str().unwrap()).collect();
    assert_eq!(joined, whole);
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last.1["finish_reason"], "length");
    assert!(others.iter().all(|(_, data)| data["finish_reason"].is_null()));
    let several = client.post(STREAM, &body(json!({"n": 2})));
    assert_eq!(several.refusal(), (400, "conflicting_parameters".into(), Some("n".into())));
    for (path, stream) in [(GENERATE, true), (STREAM, false)] {
        let refused = client.post(path, &body(json!({ "stream": stream })));
        assert_eq!(refused.refusal().2.as_deref(), Some("stream"), "{path}");
    }
}

#[test]
fn koboldish_spellings_reach_our_fields() {
    let server = server();
    let client = server.client(API);
    let hot = |extra: Value| {
        let mut all = extra;
        all["temperature"] = 1.5.into();
        text(&client, all)
    };
    assert_eq!(hot(json!({"sampler_seed": 7})), hot(json!({"seed": 7})));
    assert_ne!(hot(json!({"sampler_seed": 7})), hot(json!({"sampler_seed": 8})));
    let penalised = json!({"rep_pen": 5.0, "rep_pen_range": 0, "rep_pen_slope": 1});
    let ours = json!({"repetition_penalty": 5.0, "penalty_range": -1});
    assert_eq!(text(&client, penalised), text(&client, ours));
    let order = json!({"sampler_order": [6, 0, 1, 3, 4, 2, 5], "top_k": 1, "min_p": 0.1,
        "xtc_probability": 0.5, "dynatemp_range": 0.5, "rep_pen": 1.1, "temperature": 2});
    text(&client, order);
    let whole = text(&client, json!({"max_length": 40}));
    let stop: String = whole.chars().skip(5).take(3).collect();
    let cut = text(&client, json!({"max_length": 40, "stop_sequence": [stop]}));
    assert!(whole.starts_with(&cut) && cut.len() < whole.len());
    let kept = json!({"max_length": 40, "stop_sequence": [stop], "trim_stop": false});
    assert_eq!(text(&client, kept), format!("{cut}{stop}"));
    let line = json!({"max_length": 40, "singleline": true, "regex_pattern": "ab\\ncd"});
    assert_eq!(text(&client, line), "ab");
    let grammar = json!({"grammar": "root ::= \"yes\" | \"no\""});
    assert!(["yes", "no"].contains(&text(&client, grammar).as_str()));
    server.wait_idle();
}

#[test]
fn what_cannot_be_done_is_refused_and_what_asks_for_nothing_is_not() {
    let server = server();
    let client = server.client(API);
    for (name, value, nothing) in [
        ("bypass_eos", json!(true), json!(false)),
        ("images", json!(["aGk="]), json!([])),
        ("soft_prompt", json!("a.zip"), json!("")),
        ("logprobs", json!(true), json!(false)),
        ("frmttriminc", json!(true), json!(false)),
        ("use_story", json!(true), Value::Null),
        ("grammar_retain_state", json!(true), json!(false)),
    ] {
        let ask = |value| {
            let extra = Map::from_iter([(name.to_owned(), value)]);
            client.post(GENERATE, &body(Value::Object(extra)))
        };
        let expected = (400, "unsupported_parameter".to_owned(), Some(name.to_owned()));
        assert_eq!(ask(value).refusal(), expected);
        ask(nothing).good();
    }
    let refused = |extra: Value| client.post(GENERATE, &body(extra)).refusal().2.unwrap();
    let slope = client.post(GENERATE, &body(json!({"rep_pen": 1.1, "rep_pen_slope": 2.5})));
    assert_eq!((slope.status, slope.header("x-ignored-fields")), (200, Some("rep_pen_slope")));
    assert_eq!(refused(json!({"sampler_order": [0, 6]})), "sampler_order");
    assert_eq!(refused(json!({"max_length": 9, "max_context_length": 9})), "max_length");
    let placeholders = json!({"prompt": "{{[INPUT]}}x", "replace_instruct_placeholders": true});
    assert_eq!(refused(placeholders), "replace_instruct_placeholders");
    assert_eq!(client.post(GENERATE, &json!({})).refusal().2.unwrap(), "prompt");
    let quiet = client.post(GENERATE, &body(json!({"quiet": true, "unheard_of": 1})));
    assert_eq!(quiet.header("x-ignored-fields"), Some("unheard_of"));
    server.wait_idle();
}

#[test]
fn a_context_keeps_the_memory_and_the_newest_text() {
    let server = server();
    let client = server.client(API);
    let count = |text: &str, special: bool| {
        let body = json!({"prompt": text, "special": special});
        client.post("/api/extra/tokencount", &body).good()["value"].as_u64().unwrap()
    };
    let (memory, newest) = ("Remember arrays.", " The `map()` method");
    let prompt = format!("{}{newest}", " word".repeat(200));
    let room = count(memory, true) + count(newest, false);
    let ask = |memory: &str, prompt: &str, context: u64| {
        let extra = json!({"memory": memory, "prompt": prompt, "max_context_length": context});
        client.post(GENERATE, &body(extra))
    };
    let cut = ask(memory, &prompt, room + 12).good();
    assert_eq!(cut["results"][0]["prompt_tokens"], room, "{cut}");
    let whole = ask(memory, &prompt, 4000).good();
    assert!(whole["results"][0]["prompt_tokens"].as_u64().unwrap() > 200, "{whole}");
    assert_eq!(ask("word ".repeat(50).as_str(), "x", 40).refusal().1, "context_length_exceeded");
    // Without a length, the answer ends where the context does.
    let open = json!({"prompt": "CSS is", "max_context_length": 20, "ban_eos_token": true});
    let open = client.post(GENERATE, &open).good();
    let tokens = |name: &str| open["results"][0][name].as_u64().unwrap();
    assert_eq!(tokens("prompt_tokens") + tokens("completion_tokens"), 20, "{open}");
}

#[test]
fn answers_are_seen_and_ended_by_name_and_only_by_their_key() {
    let server = server();
    let (alice, bob) = (server.client(API), server.client(OTHER));
    let seen = |client: &Client, genkey: &str| {
        let value = client.post(CHECK, &json!({ "genkey": genkey })).good();
        value["results"][0]["text"].as_str().unwrap().to_owned()
    };
    let ended = |client: &Client, genkey: &str| {
        client.post(ABORT, &json!({ "genkey": genkey })).good()["success"] == true
    };
    let waiting = std::thread::scope(|scope| {
        let answer = scope.spawn(|| alice.post(GENERATE, &long(json!({"genkey": "K1"}))).good());
        wait_for("some text", || !seen(&alice, "K1").is_empty());
        for (client, genkey) in [(&bob, "K1"), (&alice, "K2"), (&server.client(ADMIN), "K1")] {
            assert_eq!(seen(client, genkey), "");
            assert!(!ended(client, genkey));
        }
        assert!(ended(&alice, "K1"));
        answer.join().unwrap()
    });
    let result = &waiting["results"][0];
    assert_eq!(result["finish_reason"], "stop");
    assert!(result["completion_tokens"].as_u64().unwrap() < 1500, "{result}");
    // A stream ends the same way, and an answer without a name has the empty one.
    let mut stream = alice.stream(STREAM, &long(json!({})));
    stream.until(|event| event["token"] != "");
    wait_for("its text", || alice.get(CHECK).good()["results"][0]["text"].as_str() != Some(""));
    assert_eq!(bob.get(CHECK).good()["results"][0]["text"], "");
    assert_eq!(alice.send("POST", ABORT, None).good()["success"], true);
    assert_eq!(stream.rest().last().unwrap()["finish_reason"], "stop");
    server.wait_idle();
    assert!(!ended(&alice, "K1") && !ended(&alice, ""));
}

#[test]
fn whoever_leaves_costs_nothing() {
    let server = server();
    let client = server.client(API);
    let mut stream = client.stream(STREAM, &long(json!({"genkey": "K"})));
    stream.until(|event| event["token"] != "");
    drop(stream);
    server.wait_idle();
    let asked = long(json!({"genkey": "K"})).to_string();
    let socket = client.open("POST", GENERATE, Some(asked.as_bytes()));
    wait_for("the job to run", || server.stats().queue.active > 0);
    drop(socket);
    server.wait_idle();
    let seen = client.post(CHECK, &json!({"genkey": "K"})).good();
    assert_eq!(seen["results"][0]["text"], "");
}

#[test]
fn clients_learn_what_they_ask_first() {
    let server = server();
    let client = server.client(API);
    let context = client.get("/v1/model").good()["max_model_len"].clone();
    for base in ["/api/v1", "/api/latest"] {
        let get = |path: &str| client.get(&format!("{base}{path}")).good();
        assert_eq!(get("/model"), json!({"result": "pagella/demo"}));
        assert_eq!(get("/config/max_length")["value"], context);
        assert_eq!(get("/config/max_context_length")["value"], context);
        assert_eq!(get("/config/soft_prompts_list"), json!({"values": []}));
        assert_eq!(get("/config/soft_prompt"), json!({"value": ""}));
        assert_eq!(get("/info/version"), json!({"result": "1.2.5"}));
    }
    assert_eq!(client.get("/api/extra/true_max_context_length").good()["value"], context);
    let version = server.stranger().get("/api/extra/version").good();
    assert_eq!((&version["result"], &version["protected"]), (&json!("KoboldCpp"), &json!(true)));
    let counted = client.post("/api/extra/tokencount", &json!({"prompt": "CSS is"})).good();
    let ours = client.post("/v1/token/encode", &json!({"text": "CSS is"})).good();
    assert_eq!((&counted["ids"], &counted["value"]), (&ours["tokens"], &ours["length"]));
    let info = client.get("/.well-known/serviceinfo").good();
    assert_eq!(info["api"]["koboldai"]["relative_url"], "/api");
}

#[test]
fn limits_hold_here_too() {
    let mut small = settings();
    small.network.api_servers = vec![ApiServer::Kobold];
    small.limits.max_tokens = 5;
    let server = TestServer::start(small, keys(), Some(demo(1)));
    let client = server.client(API);
    let value = client.post(GENERATE, &long(json!({}))).good();
    assert_eq!(value["results"][0]["completion_tokens"], 5);
    assert_eq!(client.get("/api/v1/config/max_length").good()["value"], 5);
    let empty = TestServer::start(
        {
            let mut settings = settings();
            settings.network.api_servers = vec![ApiServer::Kobold];
            settings
        },
        keys(),
        None,
    );
    assert_eq!(empty.client(API).post(GENERATE, &body(json!({}))).refusal().1, "no_model_loaded");
    assert_eq!(empty.client(API).get("/api/v1/model").refusal().1, "no_model_loaded");
}
