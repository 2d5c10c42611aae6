//! Fetching models, with someone who fetches from a folder.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pagella_server::{FetchError, FetchProgress, Fetcher, Order};
use serde_json::{Value, json};

use crate::support::{ADMIN, TestServer, keys, settings, wait_for};

/// Writes files byte by byte, slowly.
struct Slow {
    files: usize,
    pause: Duration,
}

impl Fetcher for Slow {
    fn fetch(
        &self,
        order: &Order,
        report: &mut dyn FnMut(&FetchProgress) -> ControlFlow<()>,
    ) -> Result<(), FetchError> {
        match order.repository.as_str() {
            "org/absent" => return Err(FetchError::Missing("there is no such model".to_owned())),
            "org/large" => return Err(FetchError::NoSpace { bytes: 1 << 40, free: Some(1 << 20) }),
            "org/defect" => panic!("a defect"),
            _ => {}
        }
        let total = self.files as u64;
        for file in 0..self.files {
            let progress = FetchProgress {
                file: format!("{file}.safetensors"),
                done: file as u64,
                total,
                files_done: file,
                files_total: self.files,
            };
            if report(&progress).is_break() {
                return Err(FetchError::Stopped);
            }
            std::thread::sleep(self.pause);
        }
        std::fs::create_dir(&order.target).unwrap();
        let text = if order.include.is_empty() { "{}".to_owned() } else { order.include.join(" ") };
        std::fs::write(order.target.join("config.json"), text).unwrap();
        Ok(())
    }
}

fn server(dir: &Path, files: usize) -> TestServer {
    let mut own = settings();
    own.model.model_dir = dir.to_owned();
    let server = TestServer::start(own, keys(), None);
    let pause = Duration::from_millis(20);
    server.app.downloads.fetch_with(Arc::new(Slow { files, pause }));
    server
}

fn post(server: &TestServer, body: Value) -> crate::support::Answer {
    server.client(ADMIN).post("/v1/download", &body)
}

#[test]
fn a_model_is_fetched_into_the_folder_of_models() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), 3);
    let done = post(&server, json!({"repo_id": "org/model", "token": "hf_secret"})).good();
    assert_eq!(done["download_path"], "model");
    assert!(dir.path().join("model/config.json").exists());
    let again = post(&server, json!({"repo_id": "org/model"}));
    assert_eq!(again.refusal(), (409, "already_exists".to_owned(), Some("folder_name".to_owned())));
    assert_eq!(again.header("x-should-retry"), Some("false"));
    let id = done["id"].as_str().unwrap();
    let seen = server.client(ADMIN).get(&format!("/v1/download/{id}"));
    assert_eq!(seen.good()["status"], "finished");
    assert!(!seen.text().contains("hf_secret"));
    let named = json!({"repo_id": "org/model", "folder_name": "org/other", "stream": true});
    std::fs::create_dir(dir.path().join("org")).unwrap();
    let events = post(&server, named).events();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!((&last["status"], &last["files_total"]), (&json!("finished"), &json!(3)));
    assert_eq!(last["download_path"], "org/other");
}

#[test]
fn an_adapter_is_fetched_into_the_folder_of_adapters() {
    let dir = tempfile::tempdir().unwrap();
    let mut own = settings();
    own.model.model_dir = dir.path().join("models");
    own.downloads.dir = Some(dir.path().join("elsewhere"));
    own.lora.lora_dir = dir.path().join("loras");
    std::fs::create_dir(&own.lora.lora_dir).unwrap();
    let server = TestServer::start(own, keys(), None);
    server.app.downloads.fetch_with(Arc::new(Slow { files: 1, pause: Duration::ZERO }));
    let body = json!({"repo_id": "org/poet", "repo_type": "lora"});
    assert_eq!(post(&server, body.clone()).good()["download_path"], "poet");
    // What a request does not name is what an adapter needs, and nothing that can carry code.
    let fetched = std::fs::read_to_string(dir.path().join("loras/poet/config.json")).unwrap();
    assert_eq!(fetched, "adapter_config.json adapter_model*.safetensors adapter_model*.json");
    assert_eq!(post(&server, body).refusal().1, "already_exists");
    let other = json!({"repo_id": "org/poet", "repo_type": "lora", "folder_name": "../x"});
    assert_eq!(post(&server, other).refusal().0, 400);
}

#[test]
fn what_goes_wrong_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), 1);
    let refusal = |body: Value| post(&server, body).refusal();
    assert_eq!(refusal(json!({"repo_id": "org/absent"})).0, 404);
    assert_eq!(refusal(json!({"repo_id": "org/large"})).1, "out_of_memory");
    assert_eq!(refusal(json!({"repo_id": "org/defect"})).1, "internal_error");
    assert_eq!(refusal(json!({})).1, "missing_parameter");
    for name in ["../x", "a/../../x", "C:x", "nul", ""] {
        let (status, _, param) = refusal(json!({"repo_id": "a/b", "folder_name": name}));
        assert_eq!((status, param.as_deref()), (400, Some("folder_name")), "{name}");
    }
    let streamed = post(&server, json!({"repo_id": "org/absent", "stream": true})).events();
    assert!(streamed.last().unwrap().contains("model_not_found"), "{streamed:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
    let mut off = settings();
    off.downloads.enabled = false;
    let server = TestServer::start(off, keys(), None);
    assert_eq!(post(&server, json!({"repo_id": "a/b"})).refusal().1, "feature_disabled");
}

#[test]
fn a_download_is_stopped_by_its_client_or_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), 100_000);
    let begun = post(&server, json!({"repo_id": "org/model", "background": true})).good();
    let path = format!("/v1/download/{}", begun["id"].as_str().unwrap());
    let status = || server.client(ADMIN).get(&path).good()["status"].clone();
    assert_eq!(status(), "downloading");
    assert_eq!(post(&server, json!({"repo_id": "org/model"})).refusal().1, "already_exists");
    let stopped = server.client(ADMIN).send("DELETE", &path, None).good();
    assert_eq!(stopped["cancelled"], true);
    wait_for("the download to stop", || status() == "stopped");
    assert_eq!(server.client(ADMIN).send("DELETE", &path, None).good()["cancelled"], false);
    assert_eq!(server.client(ADMIN).get("/v1/download/nobody").refusal().1, "request_not_found");
    // A client that goes away stops its own.
    for stream in [true, false] {
        let body = json!({"repo_id": "org/gone", "stream": stream}).to_string();
        let socket = server.client(ADMIN).open("POST", "/v1/download", Some(body.as_bytes()));
        std::thread::sleep(Duration::from_millis(100));
        drop(socket);
        wait_for("the name to be free again", || {
            let again = post(&server, json!({"repo_id": "org/gone", "background": true}));
            if again.status == 200 {
                let path = format!("/v1/download/{}", again.json()["id"].as_str().unwrap());
                server.client(ADMIN).send("DELETE", &path, None).good();
            }
            again.status == 200
        });
        wait_for("it to stop", || {
            post(&server, json!({"repo_id": "org/gone", "timeout": 1})).refusal().1
                != "already_exists"
        });
    }
}
