//! What the page keeps on the server.

use pagella_server::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{ADMIN, API, Answer, Client, OTHER, TestServer, keys, settings};

const STORE: &str = "/v1/ui/store";

fn chosen(dir: &TempDir, choose: impl FnOnce(&mut Settings)) -> TestServer {
    let mut settings = settings();
    settings.ui.server_store = true;
    settings.ui.store_dir = dir.path().to_owned();
    choose(&mut settings);
    TestServer::start(settings, keys(), None)
}

fn path(id: &str) -> String {
    format!("{STORE}/{id}")
}

fn put(client: &Client, id: &str, document: &Value, version: Option<&str>) -> Answer {
    let client = match version {
        Some(version) => client.clone().with("if-match", &format!("\"{version}\"")),
        None => client.clone(),
    };
    client.send("PUT", &path(id), Some(document.to_string().as_bytes()))
}

fn version(answer: &Answer) -> String {
    let version = answer.good()["version"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("etag"), Some(format!("\"{version}\"").as_str()));
    version
}

#[test]
fn documents_are_kept_by_version_and_survive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = chosen(&dir, |_| ());
    let client = server.client(API);
    assert_eq!(client.get(STORE).good()["data"], json!([]));
    let first = version(&put(&client, "c1", &json!({"title": "ä", "nodes": []}), None));
    // Whoever does not know the version changes nothing.
    let refused = put(&client, "c1", &json!({"title": "x"}), None);
    assert_eq!(refused.refusal().1, "version_conflict");
    assert_eq!(refused.json()["error"]["details"]["version"], first.as_str());
    let second = version(&put(&client, "c1", &json!({"title": "y"}), Some(&first)));
    assert_eq!(put(&client, "c1", &json!({}), Some(&first)).refusal().0, 409);
    let read = client.get(&path("c1"));
    assert_eq!(read.good(), json!({"title": "y"}));
    assert_eq!(read.header("etag"), Some(format!("\"{second}\"").as_str()));
    let known = client.clone().with("if-none-match", &format!("\"{second}\""));
    let same = known.get(&path("c1"));
    assert_eq!((same.status, same.body.len()), (304, 0));
    drop(server);
    let server = chosen(&dir, |_| ());
    let client = server.client(API);
    let list = client.get(STORE).good();
    assert_eq!(list["data"], json!([{"id": "c1", "version": second, "bytes": 13}]));
    let stale = client.clone().with("if-match", &format!("\"{first}\""));
    assert_eq!(stale.send("DELETE", &path("c1"), None).refusal().1, "version_conflict");
    assert_eq!(client.send("DELETE", &path("c1"), None).good()["deleted"], true);
    assert_eq!(client.get(&path("c1")).refusal().1, "document_not_found");
    assert_eq!(client.send("DELETE", &path("c1"), None).refusal().0, 404);
}

#[test]
fn documents_belong_to_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = chosen(&dir, |_| ());
    let alice = server.client(API);
    let version = version(&put(&alice, "mine", &json!({"a": 1}), None));
    for key in [OTHER, ADMIN] {
        let other = server.client(key);
        assert_eq!(other.get(STORE).good()["data"], json!([]));
        assert_eq!(other.get(&path("mine")).refusal().0, 404);
        assert_eq!(other.send("DELETE", &path("mine"), None).refusal().0, 404);
        assert_eq!(put(&other, "mine", &json!({}), Some(&version)).refusal().0, 409);
    }
    version_of_another_is_its_own(&server.client(OTHER), &version);
    assert_eq!(alice.get(&path("mine")).good(), json!({"a": 1}));
}

fn version_of_another_is_its_own(other: &Client, alices: &str) {
    put(other, "mine", &json!({"b": 2}), None).good();
    assert_eq!(put(other, "mine", &json!({"b": 3}), Some(alices)).status, 409);
    assert_eq!(other.get(&path("mine")).good(), json!({"b": 2}));
}

#[test]
fn limits_and_names_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let server = chosen(&dir, |settings| {
        settings.ui.store_max_entries = 2;
        settings.ui.store_max_bytes = 64;
    });
    let client = server.client(API);
    put(&client, "a", &json!({}), None).good();
    let large = put(&client, "b", &json!({"x": "y".repeat(64)}), None);
    assert_eq!(large.refusal().1, "request_too_large");
    put(&client, "b", &json!({}), None).good();
    assert_eq!(put(&client, "c", &json!({}), None).refusal().1, "request_too_large");
    put(&server.client(OTHER), "c", &json!({}), None).good();
    for id in ["..", "a%2fb", "A", "a.b", "%00", "x".repeat(65).as_str()] {
        assert_eq!(put(&client, id, &json!({}), None).refusal().0, 400, "{id}");
        assert_eq!(client.get(&path(id)).refusal().0, 400, "{id}");
    }
    assert_eq!(put(&client, "a", &json!([1]), None).refusal().1, "invalid_type");
    for tag in ["1", "*", "\"x\"", "W/\"1\"", "\"1\", \"2\""] {
        let tagged = client.clone().with("if-match", tag);
        assert_eq!(
            tagged.send("PUT", &path("a"), Some(b"{}")).refusal().1,
            "invalid_type",
            "{tag}"
        );
    }
}

#[test]
fn of_two_writers_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = chosen(&dir, |_| ());
    let client = server.client(API);
    let mut now = version(&put(&client, "c", &json!({"n": 0}), None));
    for round in 0..5 {
        let answers: Vec<u16> = std::thread::scope(|scope| {
            let (client, now) = (&client, &now);
            let writers: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn(move || put(client, "c", &json!({ "n": n }), Some(now)).status)
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "round {round}");
        assert_eq!(answers.iter().filter(|status| **status == 409).count(), 3);
        now = client.get(STORE).good()["data"][0]["version"].as_str().unwrap().to_owned();
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let server = chosen(&dir, |settings| settings.ui.store_dir = file.join("store"));
    let refused = put(&server.client(API), "a", &json!({}), None);
    assert_eq!(refused.refusal().1, "internal_error");
    let text = refused.text();
    assert!(text.contains("ui.store_dir") && !text.contains("file/store"), "{text}");
}

#[test]
fn nothing_is_kept_unless_the_operator_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = chosen(&dir, |settings| settings.ui.server_store = false);
    let client = server.client(API);
    assert_eq!(client.get(STORE).refusal(), (501, "feature_disabled".into(), None));
    assert_eq!(put(&client, "a", &json!({}), None).refusal().0, 501);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
