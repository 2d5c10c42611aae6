//! Models that come and go while the server runs.

use serde_json::{Value, json};

use crate::folder::{Fault, ModelFolder};
use crate::support::{ADMIN, API, Client, TestServer, settings, wait_for};

pub const LOAD: &str = "/v1/model/load";
pub const UNLOAD: &str = "/v1/model/unload";
pub const COMPLETIONS: &str = "/v1/completions";

/// Events of a load that must succeed.
pub fn load(client: &Client, id: &str) -> Vec<Value> {
    let answer = client.post(LOAD, &json!({ "model_name": id }));
    let events: Vec<Value> =
        answer.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["status"], &last["model_type"]), (&json!("finished"), &json!("model")));
    events
}

/// Who answers.
pub fn answers(client: &Client, model: Option<&str>) -> Value {
    let body = json!({"prompt": "CSS is", "max_tokens": 3, "temperature": 0, "model": model});
    client.post(COMPLETIONS, &body).good()["model"].clone()
}

pub fn ids(client: &Client) -> Vec<(String, String)> {
    let list = client.get("/v1/model/list").good();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let card = |card: &Value| (text(&card["id"]), text(&card["status"]));
    list["data"].as_array().unwrap().iter().map(card).collect()
}

pub fn long() -> Value {
    json!({
        "prompt": "CSS is", "max_tokens": 1500, "ban_eos_token": true, "temperature": 0,
        "stream": true,
    })
}

#[test]
fn progress_is_monotonic_and_ends_in_finished() {
    let folder = ModelFolder::with(&["a", "org/b"]);
    let server = TestServer::with_folder(settings(), &folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    assert_eq!(ids(&api), []);
    let unloaded = |id: &str| (id.to_owned(), "unloaded".to_owned());
    assert_eq!(ids(&admin), [unloaded("a"), unloaded("org/b")]);
    let events = load(&admin, "a");
    let modules = events[1]["modules"].as_u64().unwrap();
    let processing: Vec<&Value> =
        events.iter().filter(|event| event["status"] == "processing").collect();
    let numbers: Vec<u64> =
        processing.iter().map(|event| event["module"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=modules).collect::<Vec<u64>>());
    let bytes = |event: &&Value| event["bytes_done"].as_u64().unwrap();
    assert!(processing.is_sorted_by_key(bytes));
    let statuses: Vec<&str> =
        events.iter().map(|event| event["status"].as_str().unwrap()).collect();
    assert_eq!(statuses[0], "queued");
    assert_eq!(statuses[statuses.len() - 2..], ["warmup", "finished"]);
    assert_eq!(answers(&api, None), "a");
    assert_eq!(ids(&api), [("a".to_owned(), "loaded".to_owned())]);
    // Loaded as asked already.
    assert_eq!(load(&admin, "a").len(), 1);
    let whole = json!({"model_name": "a", "stream": false});
    assert_eq!(admin.post(LOAD, &whole).good()["status"], "finished");
    assert_eq!(folder.opened(), 1);
    // With other options it is loaded again.
    let other = json!({"model_name": "a", "cache_size": 1024, "cache_mode": "Q8", "stream": false});
    admin.post(LOAD, &other).good();
    let parameters = &api.get("/v1/model").good()["parameters"];
    assert_eq!(
        (&parameters["cache_size"], &parameters["cache_mode"]),
        (&json!(1024), &json!("q8"))
    );
    assert!(parameters.get("prompt_template_content").is_none());
    assert!(admin.get("/v1/model").good()["parameters"]["prompt_template_content"].is_string());
    // Another takes its place.
    let events = load(&admin, "org/b");
    assert!(events.iter().any(|event| event["status"] == "unloading"));
    assert_eq!((answers(&api, None), folder.alive()), (json!("org/b"), 1));
    assert_eq!(answers(&api, Some("b")), "org/b", "the last part of a name is enough");
    assert_eq!(admin.get("/v1/models/org%2Fb").good()["status"], "loaded");
    assert_eq!(admin.post(UNLOAD, &json!({})).good()["status"], "unloaded");
    assert_eq!((ids(&api), folder.alive()), (vec![], 0));
    assert_eq!(admin.send("POST", UNLOAD, None).refusal().1, "no_model_loaded");
    assert_eq!(api.post(LOAD, &json!({"model_name": "a"})).refusal().0, 403);
}

#[test]
fn a_plan_of_memory_without_loading() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let ask = json!({"model_name": "b", "dry_run": true, "cache_size": 512});
    let plan = admin.post(LOAD, &ask).good();
    let device = &plan["devices"][0];
    for (field, bytes) in
        [("total_bytes", 1 << 20), ("weights_bytes", 100), ("cache_bytes", 512), ("other_bytes", 0)]
    {
        assert_eq!(device[field], bytes, "{plan}");
    }
    assert_eq!(
        (&plan["fits"], device["free_bytes"].as_i64()),
        (&json!(true), Some((1 << 20) - 612))
    );
    load(&admin, "a");
    let plan = admin.post(LOAD, &ask).good();
    assert_eq!((&plan["unloads"], folder.opened()), (&json!(["a"]), 1));
    let memory = admin.get("/v1/model").good()["memory"]["devices"][0].clone();
    assert_eq!((&memory["name"], &memory["weights_bytes"]), (&json!("cpu"), &json!(100)));
    // What does not fit is refused before anything is given up.
    let huge = json!({"model_name": "b", "cache_size": 1 << 21});
    let refused = admin.post(LOAD, &huge);
    assert_eq!((refused.status, refused.refusal().1), (503, "out_of_memory".to_owned()));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(refused.json()["error"]["details"]["fits"], false);
    assert_eq!(answers(&admin, None), "a");
}

#[test]
fn names_cannot_escape() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    for name in ["../a", "/etc", "a/../a", "..\\a", "CON", "a.", "C:a", "a\u{0}", "", "a//"] {
        let refused = admin.post(LOAD, &json!({ "model_name": name })).refusal();
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some("model_name")), "{name}");
    }
    let absent = admin.post(LOAD, &json!({"model_name": "absent"})).refusal();
    assert_eq!(absent, (404, "model_not_found".to_owned(), Some("model_name".to_owned())));
    assert_eq!(admin.post(LOAD, &json!({})).refusal().1, "missing_parameter");
    for (field, value) in [("cpu_moe_offload_layers", json!(1)), ("vision", json!(true))] {
        let refused = admin.post(LOAD, &json!({"model_name": "a", field: value})).refusal();
        let expected = (400, "unsupported_parameter".to_owned(), Some(field.to_owned()));
        assert_eq!(refused, expected);
    }
    assert_eq!(folder.opened(), 0);
}

#[test]
fn a_failure_at_any_stage_leaves_no_model_and_returns_all_memory() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    for fault in [
        Fault::Plan,
        Fault::Open,
        Fault::Panic,
        Fault::Module(0),
        Fault::Module(3),
        Fault::Parts,
        Fault::Warmup,
    ] {
        load(&admin, "a");
        assert_eq!(folder.alive(), 1);
        folder.fail_at(fault);
        let answer = admin.post(LOAD, &json!({"model_name": "b"}));
        if fault == Fault::Plan {
            assert_eq!(answer.refusal().1, "internal_error");
            assert_eq!(answers(&admin, None), "a", "nothing was given up");
            continue;
        }
        let events = answer.events();
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "internal_error", "{fault:?}: {last}");
        assert!(!last.to_string().contains("ordered"), "{last}");
        assert_eq!(folder.alive(), 0, "{fault:?}");
        let refused = admin.post(COMPLETIONS, &json!({"prompt": "x"})).refusal();
        assert_eq!(refused.1, "no_model_loaded");
        assert!(ids(&admin).contains(&("b".to_owned(), "failed".to_owned())));
        let health = admin.get("/health");
        let told = health.json();
        assert_eq!((health.status, &told["status"]), (503, &json!("no_model")), "{told}");
        assert_eq!((&told["engine"]["state"], &told["issues"]), (&json!("idle"), &json!([])));
    }
    load(&admin, "b");
    assert_eq!(answers(&admin, None), "b");
}

#[test]
fn the_same_load_is_joined_and_another_is_refused() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let gate = folder.hold_loads();
    let mut first = admin.stream(LOAD, &json!({"model_name": "a"}));
    wait_for("the load to wait", || folder.is_waiting());
    let mut second = admin.stream(LOAD, &json!({"model_name": "a"}));
    let other = admin.post(LOAD, &json!({"model_name": "b"}));
    assert_eq!((other.status, other.refusal().1), (409, "load_in_progress".to_owned()));
    assert_eq!(other.header("x-should-retry"), Some("false"));
    let different = admin.post(LOAD, &json!({"model_name": "a", "cache_size": 512}));
    assert_eq!(different.status, 409);
    assert_eq!(admin.post(UNLOAD, &json!({})).status, 409);
    let loading = server.client(API).post(COMPLETIONS, &json!({"prompt": "x"}));
    assert_eq!((loading.status, loading.refusal().1), (503, "model_loading".to_owned()));
    assert!(loading.header("retry-after").is_some());
    for path in ["/health", "/v1/health", "/health/ready"] {
        let health = server.stranger().get(path);
        let told = health.json();
        assert_eq!((health.status, &told["status"]), (503, &json!("loading")), "{told}");
        assert_eq!((&told["engine"]["state"], &told["model"]), (&json!("loading"), &json!("a")));
        assert!(told["progress"]["modules"].is_u64(), "{told}");
    }
    assert_eq!(server.stranger().get("/health/live").status, 200);
    assert_eq!(server.client(API).get("/v1/models").good()["data"][0]["status"], "loading");
    // The first to ask leaves; the load goes on.
    first.next().unwrap();
    drop(first);
    gate.send(()).unwrap();
    drop(gate);
    let events = second.rest();
    assert_eq!(events[0]["status"], "queued", "whoever comes late hears all");
    assert_eq!(events.last().unwrap()["status"], "finished");
    assert_eq!((folder.opened(), answers(&admin, None)), (1, json!("a")));
}

#[test]
fn a_client_that_leaves_stops_its_load_only_if_it_said_so() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    for (cancels, left) in [(true, 0), (false, 1)] {
        let gate = folder.hold_loads();
        let ask = json!({"model_name": "a", "cancel_on_disconnect": cancels});
        let mut stream = admin.stream(LOAD, &ask);
        stream.next().unwrap();
        wait_for("the load to wait", || folder.is_waiting());
        drop(stream);
        if cancels {
            wait_for("the load to be told", || {
                server.app.model.load().is_some_and(|load| load.is_cancelled())
            });
        }
        drop(gate);
        wait_for("the load to end", || server.app.model.load().is_none());
        assert_eq!((folder.alive(), folder.opened()), (left, left), "cancels: {cancels}");
    }
    assert_eq!(answers(&admin, None), "a");
}

#[test]
fn a_load_ends_with_the_server() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let gate = folder.hold_loads();
    let stream = server.client(ADMIN).stream(LOAD, &json!({"model_name": "a"}));
    wait_for("the load to wait", || folder.is_waiting());
    server.stop();
    wait_for("the load to be told", || {
        server.app.model.load().is_some_and(|load| load.is_cancelled())
    });
    drop(gate);
    wait_for("the load to end", || server.app.model.load().is_none());
    assert_eq!((folder.alive(), folder.opened()), (0, 0));
    drop(stream);
}

#[test]
fn requests_are_waited_for_or_ended_when_their_model_goes() {
    let folder = ModelFolder::with(&["a", "b"]);
    let mut patient = settings();
    patient.shutdown.drain_timeout = std::time::Duration::from_secs(60);
    let server = TestServer::with_folder(patient, &folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    load(&admin, "a");
    // Waited for: the answer is whole, and new requests are refused meanwhile.
    let mut some = long();
    some["max_tokens"] = 200.into();
    let mut running = api.stream(COMPLETIONS, &some);
    running.until_text();
    folder.levers.steps.hold_at(|_| true);
    let gate = folder.hold_loads();
    let mut loading = admin.stream(LOAD, &json!({"model_name": "b"}));
    while !loading.next().unwrap().contains("unloading") {}
    let refused = api.post(COMPLETIONS, &json!({"prompt": "x"}));
    assert_eq!(refused.status, 503, "{}", refused.text());
    folder.levers.steps.open();
    drop(gate);
    let events = running.rest();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    assert_eq!(loading.rest().last().unwrap()["status"], "finished");
    assert_eq!(answers(&api, None), "b");
    // Ended: by a load that does not wait, and by an unload.
    for end in ["load", "unload"] {
        let mut running = api.stream(COMPLETIONS, &long());
        running.until_text();
        match end {
            "load" => drop(admin.post(LOAD, &json!({"model_name": "a", "skip_queue": true}))),
            _ => drop(admin.post(UNLOAD, &json!({})).good()),
        }
        let events = running.rest();
        assert_eq!(events.last().unwrap()["error"]["code"], "model_unloading", "{end}");
    }
    assert_eq!(folder.alive(), 0);
    // An unload that waits, but not for ever.
    load(&admin, "a");
    let mut running = api.stream(COMPLETIONS, &long());
    running.until_text();
    admin.post(UNLOAD, &json!({"mode": "drain", "timeout": 0})).good();
    assert_eq!(running.rest().last().unwrap()["error"]["code"], "model_unloading");
    assert_eq!(admin.post(UNLOAD, &json!({"mode": "slowly"})).refusal().0, 400);
}

#[test]
fn the_previous_model_answers_until_the_next_is_ready() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    load(&admin, "a");
    let gate = folder.hold_loads();
    let ask = json!({"model_name": "b", "keep_previous": true});
    let mut loading = admin.stream(LOAD, &ask);
    wait_for("the load to wait", || folder.is_waiting());
    assert_eq!((answers(&admin, None), folder.alive()), (json!("a"), 1));
    drop(gate);
    assert_eq!(loading.rest().last().unwrap()["status"], "finished");
    assert_eq!((answers(&admin, None), folder.alive()), (json!("b"), 1));
    // A failure changes nothing then.
    folder.fail_at(Fault::Module(1));
    admin.post(LOAD, &json!({"model_name": "a", "keep_previous": true}));
    assert_eq!((answers(&admin, None), folder.alive()), (json!("b"), 1));
    // Both must fit.
    folder.levers.total_bytes.store(150, std::sync::atomic::Ordering::SeqCst);
    let refused = admin.post(LOAD, &json!({"model_name": "a", "keep_previous": true}));
    assert_eq!(refused.refusal().1, "out_of_memory");
    load(&admin, "a");
}

#[test]
fn model_folder_config_is_untrusted() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let cache = |ask: Value| {
        admin.post(LOAD, &ask).events();
        admin.get("/v1/model").good()["parameters"]["cache_size"].clone()
    };
    let tables = json!({
        "model": {
            "cache_size": 512, "max_batch_size": 2, "gpu_split": [9, 9], "model_dir": "/etc",
            "template_vars_force": {"x": 1}, "host": "0.0.0.0",
        },
        "force": {"max_batch_size": 3},
        "sampling": {"temperature": 0.25},
    });
    folder.set_file(tables.clone(), true);
    assert_eq!(cache(json!({"model_name": "a"})), 8192, "a downloaded file counts for nothing");
    assert_eq!(cache(json!({"model_name": "a", "trust": true})), 512);
    assert_eq!(cache(json!({"model_name": "a"})), 512, "it is trusted from now on");
    assert_eq!(
        cache(json!({"model_name": "a", "cache_size": 768})),
        768,
        "the request is stronger"
    );
    let parameters = admin.get("/v1/model").good()["parameters"].clone();
    assert_eq!(parameters["max_batch_size"], 3, "what is forced is stronger still");
    let ask = json!({"model_name": "a", "max_batch_size": 7, "cache_size": 1024});
    assert_eq!(cache(ask), 1024);
    assert_eq!(admin.get("/v1/model").good()["parameters"]["max_batch_size"], 3);
    let props = admin.get("/props").good();
    assert_eq!(props["default_generation_settings"]["params"]["temperature"], 0.25);
    for tables in [
        json!({"model": {"cache_size": u64::MAX}}),
        json!({"force": {"chunk_size": "x"}}),
        json!({"sampling": {"temperature": -1.0}}),
        json!({"sampling": {"evil": 1}}),
    ] {
        folder.set_file(tables.clone(), false);
        let refused = admin.post(LOAD, &json!({"model_name": "a"})).refusal();
        assert_eq!(refused.0, 400, "{tables}");
    }
}

#[test]
fn a_template_in_place_of_the_models_own() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    let ask = |name: &str| admin.post(LOAD, &json!({"model_name": "a", "prompt_template": name}));
    assert_eq!(ask("no-such-template").refusal().1, "template_not_found");
    assert_eq!(ask("../x").refusal().0, 400);
    assert_eq!(folder.opened(), 0);
    ask("chatml").events();
    assert_eq!(admin.get("/v1/model").good()["parameters"]["prompt_template"], "chatml");
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let prompt = admin.post("/apply-template", &body).good()["prompt"].clone();
    assert!(prompt.as_str().unwrap().contains("<|im_start|>user"), "{prompt}");
}

#[test]
fn what_happens_is_told_to_administrators() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(settings(), &folder);
    let admin = server.client(ADMIN);
    assert_eq!(server.client(API).get("/v1/events").status, 403);
    let mut events = admin.listen("/v1/events");
    let next = |events: &mut crate::support::Stream| -> Value {
        serde_json::from_str(&events.next().unwrap()).unwrap()
    };
    let first = next(&mut events);
    assert_eq!(
        (&first["event"], &first["data"]["state"]),
        (&json!("engine_state"), &json!("idle"))
    );
    load(&admin, "a");
    admin.post(UNLOAD, &json!({})).good();
    let mut statuses = Vec::new();
    while statuses.last().is_none_or(|status| status != "unloaded") {
        let event = next(&mut events);
        assert_eq!(
            (&event["event"], &event["data"]["model"]),
            (&json!("model_status"), &json!("a"))
        );
        statuses.push(event["data"]["status"].as_str().unwrap().to_owned());
    }
    for status in ["queued", "processing", "warmup", "finished", "unloaded"] {
        assert!(statuses.iter().any(|said| said == status), "{status} is not in {statuses:?}");
    }
}

#[test]
fn lists_of_other_kinds_are_never_an_error() {
    let server = TestServer::demo();
    for key in [API, ADMIN] {
        for path in ["/v1/model/draft/list", "/v1/model/embedding/list"] {
            assert_eq!(server.client(key).get(path).good(), json!({"object": "list", "data": []}));
        }
    }
    let admin = server.client(ADMIN);
    assert_eq!(admin.get("/v1/model/embedding").refusal().1, "no_model_loaded");
    for path in ["/v1/model/embedding/load", "/v1/model/embedding/unload"] {
        assert_eq!(admin.post(path, &json!({})).refusal().1, "feature_disabled");
    }
    let refused = admin.post(LOAD, &json!({"model_name": "x"})).refusal();
    assert_eq!(refused.1, "feature_disabled", "this server has no folder");
}

#[test]
fn a_load_does_not_wait_for_ever() {
    let folder = ModelFolder::with(&["a", "b"]);
    for keep_previous in [false, true] {
        let mut hasty = settings();
        hasty.shutdown.drain_timeout = std::time::Duration::from_millis(50);
        hasty.model.max_models = 1;
        let server = TestServer::with_folder(hasty, &folder);
        let (admin, api) = (server.client(ADMIN), server.client(API));
        load(&admin, "a");
        let mut running = api.stream(COMPLETIONS, &long());
        running.until_text();
        let ask = json!({"model_name": "b", "stream": false, "keep_previous": keep_previous});
        admin.post(LOAD, &ask).good();
        let last = running.rest().pop().unwrap();
        assert_eq!(last["error"]["code"], "model_unloading", "{last}");
        assert_eq!(answers(&api, None), "b");
    }
}
