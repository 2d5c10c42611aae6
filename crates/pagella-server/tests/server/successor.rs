//! Devices that are lost for the process: another takes its place and goes on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pagella_server::{Legacy, succeed};
use serde_json::json;

use crate::folder::ModelFolder;
use crate::load::{COMPLETIONS, LOAD, long};
use crate::support::{ADMIN, API, TestServer, settings, wait_for};

/// A server whose device was lost while it answered, and what it would have handed over.
fn lose_device(folder: &ModelFolder) -> (TestServer, Legacy) {
    let server = TestServer::with_folder(settings(), folder);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    let handed: Arc<Mutex<Option<Legacy>>> = Arc::default();
    let hands = handed.clone();
    server.app.model.set_replacer(Box::new(move |legacy| {
        *hands.lock().unwrap() = Some(legacy.clone());
        "a test goes on".to_owned()
    }));
    let ask = json!({"model_name": "a", "cache_size": 4096, "cache_mode": "Q8", "stream": false});
    admin.post(LOAD, &ask).good();
    let mut stream = api.stream(COMPLETIONS, &long());
    stream.until_text();
    folder.levers.device_lost.store(true, Ordering::SeqCst);
    folder.levers.device_gone.store(true, Ordering::SeqCst);
    let last = stream.rest().pop().unwrap();
    assert_eq!(last["error"]["code"], "engine_restarting", "{last}");
    wait_for("the process to be replaced", || handed.lock().unwrap().is_some());
    let legacy = handed.lock().unwrap().take().unwrap();
    (server, legacy)
}

#[test]
fn what_a_process_hands_over_says_everything() {
    let folder = ModelFolder::with(&["a"]);
    let (server, legacy) = lose_device(&folder);
    let said = serde_json::to_value(&legacy).unwrap();
    assert_eq!(said["port"], server.address.port());
    assert_eq!(said["models"][0]["id"], "a");
    assert_eq!(said["models"][0]["options"]["cache_size"], 4096);
    assert_eq!(said["models"][0]["options"]["cache_mode"], "q8");
    assert_eq!((legacy.restarts.len(), legacy.restarts_total), (1, 1));
    assert_eq!(serde_json::from_value::<Legacy>(said).unwrap(), legacy);
    // It was not replaced, and says what to do.
    let admin = server.client(ADMIN);
    wait_for("health to tell", || admin.get("/health").json()["engine"]["state"] == "failed");
    let health = admin.get("/health");
    assert_eq!(health.status, 503);
    let issue = health.json()["issues"][0]["description"].as_str().unwrap().to_owned();
    assert!(issue.contains("start the server again"), "{issue}");
}

#[test]
fn a_successor_goes_on() {
    let folder = ModelFolder::with(&["a"]);
    let (_, legacy) = lose_device(&folder);
    folder.levers.device_lost.store(false, Ordering::SeqCst);
    let gate = folder.hold_loads();
    let server = TestServer::with_folder(settings(), &folder);
    succeed(&server.app, legacy.clone()).unwrap();
    wait_for("the model to be loaded", || folder.is_waiting());
    let api = server.client(API);
    let health = api.get("/health");
    assert_eq!((health.status, &health.json()["engine"]["state"]), (503, &json!("restarting")));
    let ask = json!({"prompt": "x", "max_tokens": 1});
    assert_eq!(api.post(COMPLETIONS, &ask).refusal().1, "engine_restarting");
    drop(gate);
    wait_for("the model to come back", || api.get("/health").status == 200);
    api.post(COMPLETIONS, &ask).good();
    let parameters = api.get("/v1/model").good()["parameters"].clone();
    assert_eq!(
        (&parameters["cache_size"], &parameters["cache_mode"]),
        (&json!(4096), &json!("q8"))
    );
    let metrics = api.get("/metrics").text().to_owned();
    assert!(metrics.lines().any(|line| line == "pagella_restarts_total 1"));
    // Restarts of earlier processes count.
    let mut worn = legacy;
    worn.restarts = vec![worn.restarts[0]; 3];
    folder.fail_at(crate::folder::Fault::Open);
    let server = TestServer::with_folder(settings(), &folder);
    succeed(&server.app, worn).unwrap();
    let api = server.client(API);
    wait_for("it to be given up", || api.get("/health").json()["engine"]["state"] == "failed");
}
