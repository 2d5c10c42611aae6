//! Models that are loaded because a request names them, and models that come back.

use std::time::Duration;

use pagella_server::{Role, Settings};
use serde_json::{Value, json};

use crate::folder::{Fault, ModelFolder};
use crate::load::{COMPLETIONS, UNLOAD, answers, ids, load};
use crate::support::{ADMIN, API, TestServer, settings, wait_for};

fn inline() -> Settings {
    let mut settings = settings();
    settings.model.inline_model_loading = true;
    settings
}

fn ask(model: &str) -> Value {
    json!({"prompt": "CSS is", "max_tokens": 3, "temperature": 0, "model": model})
}

#[test]
fn an_administrator_names_a_model_and_it_is_loaded() {
    let folder = ModelFolder::with(&["a", "org/b"]);
    let server = TestServer::with_folder(inline(), &folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    assert_eq!(answers(&admin, Some("a")), "a");
    assert_eq!(answers(&admin, Some("org/b")), "org/b");
    assert_eq!((folder.alive(), folder.opened()), (1, 2));
    assert_eq!(answers(&api, None), "org/b");
    assert_eq!(answers(&api, Some("b")), "org/b");
    for name in ["absent", "../a"] {
        let refused = admin.post(COMPLETIONS, &ask(name)).refusal();
        assert_eq!(refused, (404, "model_not_found".to_owned(), Some("model".to_owned())));
    }
    let refused = api.post(COMPLETIONS, &ask("a")).refusal();
    assert_eq!(refused, (403, "admin_key_required".to_owned(), Some("model".to_owned())));
    let adapter = api.post(COMPLETIONS, &ask("org/b:poet")).refusal();
    assert_eq!(adapter.1, "lora_not_found");
    assert_eq!(folder.opened(), 2);
}

#[test]
fn other_keys_may_if_the_operator_says_so_and_only_what_they_see() {
    let folder = ModelFolder::with(&["a", "b"]);
    let mut open = inline();
    open.model.inline_roles.push(Role::Api);
    let mut keys = crate::support::keys();
    let key = pagella_server::Key::new("carol", Role::Api);
    keys.add("carol-secret", pagella_server::Key { models: vec!["a".to_owned()], ..key });
    let server = TestServer::start(open, keys, None);
    server.app.model.set_opener(folder.opener());
    assert_eq!(answers(&server.client(API), Some("b")), "b");
    let carol = server.client("carol-secret");
    assert_eq!(carol.post(COMPLETIONS, &ask("b")).refusal().0, 404, "as if it were absent");
    assert_eq!(answers(&carol, Some("a")), "a");
    assert_eq!(ids(&carol), [("a".to_owned(), "loaded".to_owned())]);
}

#[test]
fn two_that_want_different_models_both_get_theirs() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = TestServer::with_folder(inline(), &folder);
    let gate = folder.hold_loads();
    std::thread::scope(|scope| {
        let wants = |name: &'static str| {
            let client = server.client(ADMIN);
            scope.spawn(move || assert_eq!(answers(&client, Some(name)), name));
        };
        wants("a");
        wait_for("the load to wait", || folder.is_waiting());
        wants("b");
        wants("a");
        drop(gate);
    });
    assert_eq!(folder.alive(), 1);
}

#[test]
fn a_stream_that_waits_begins_early_and_errors_come_within() {
    let folder = ModelFolder::with(&["a"]);
    let mut impatient = inline();
    impatient.model.inline_patience = Duration::from_millis(50);
    impatient.network.sse_ping_interval = Duration::from_millis(50);
    let server = TestServer::with_folder(impatient, &folder);
    let admin = server.client(ADMIN);
    let mut stream = ask("a");
    stream["stream"] = true.into();
    for fails in [true, false] {
        let gate = folder.hold_loads();
        if fails {
            folder.fail_at(Fault::Parts);
        }
        let waiting = {
            let (client, stream) = (admin.clone(), stream.clone());
            std::thread::spawn(move || client.post(COMPLETIONS, &stream))
        };
        wait_for("the load to wait", || folder.is_waiting());
        std::thread::sleep(Duration::from_millis(300));
        drop(gate);
        let answer = waiting.join().unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.text().starts_with(": keep-alive\n\n: keep-alive\n\n"), "{}", answer.text());
        let last = answer.events().pop().unwrap();
        match fails {
            true => assert!(last.contains("\"code\":\"internal_error\""), "{last}"),
            false => assert_eq!(last, "[DONE]"),
        }
    }
    // A plain request keeps its status.
    admin.post(UNLOAD, &json!({})).good();
    folder.fail_at(Fault::Open);
    assert_eq!(admin.post(COMPLETIONS, &ask("a")).status, 500);
}

#[test]
fn whoever_leaves_while_waiting_does_not_stop_the_load() {
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(inline(), &folder);
    let admin = server.client(ADMIN);
    let gate = folder.hold_loads();
    let socket = admin.open("POST", COMPLETIONS, Some(ask("a").to_string().as_bytes()));
    wait_for("the load to wait", || folder.is_waiting());
    drop(socket);
    drop(gate);
    wait_for("the load to end", || folder.opened() == 1 && server.app.model.load().is_none());
    wait_for("the request to be forgotten", || server.app.requests.is_empty());
    assert_eq!(answers(&admin, None), "a");
    assert_eq!(server.app.admission.counts(), Default::default());
}

#[test]
fn an_idle_model_is_given_up_and_comes_back() {
    let folder = ModelFolder::with(&["a"]);
    let mut thrifty = settings();
    thrifty.model.idle_unload = Duration::from_millis(700);
    let server = TestServer::with_folder(thrifty, &folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    let ask = json!({"model_name": "a", "cache_size": 1024, "stream": false});
    admin.post(crate::load::LOAD, &ask).good();
    // In use, it stays.
    let mut running = api.stream(COMPLETIONS, &crate::load::long());
    running.until_text();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(folder.alive(), 1);
    drop(running);
    wait_for("the model to be given up", || folder.alive() == 0);
    wait_for("the list to follow", || ids(&api) == [("a".to_owned(), "unloaded".to_owned())]);
    assert_eq!(api.get("/health/ready").status, 200, "the next request is answered");
    assert_eq!(answers(&api, None), "a");
    assert_eq!(api.get("/v1/model").good()["parameters"]["cache_size"], 1024, "as it was");
    wait_for("the model to be given up", || folder.alive() == 0);
    wait_for("the list to follow", || ids(&api) == [("a".to_owned(), "unloaded".to_owned())]);
    // An administrator who unloads it means it.
    admin.post(UNLOAD, &json!({})).good();
    assert_eq!(api.post(COMPLETIONS, &json!({"prompt": "x"})).refusal().1, "no_model_loaded");
    load(&admin, "a");
}

#[test]
fn further_names_of_the_model() {
    let mut named = settings();
    named.model.aliases.insert("small".to_owned(), "demo".to_owned());
    named.model.use_dummy_models = true;
    named.model.reject_unknown = true;
    let server = TestServer::start(named, crate::support::keys(), Some(crate::support::demo(8)));
    let api = server.client(API);
    let list = api.get("/v1/models").good();
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["demo", "small", "gpt-3.5-turbo"]);
    assert_eq!(list["data"][1]["parent"], "demo");
    for name in ["demo", "small", "gpt-3.5-turbo"] {
        assert_eq!(answers(&api, Some(name)), "demo", "the answer tells the truth");
    }
    assert_eq!(api.post(COMPLETIONS, &ask("gpt-4o")).refusal().0, 404);
}
