//! Keys and settings that change while the server runs.

use std::time::Duration;

use pagella_server::config::Source;
use pagella_server::{Settings, load_keys};
use serde_json::json;

use crate::support::{Client, TestServer, demo, wait_for};

pub const FIRST: &str = "[[key]]\nname = 'a'\nkey = 'first-secret'\nrole = 'admin'\n";
const SECOND: &str = "[[key]]\nname = 'b'\nkey = 'second-secret'\nrole = 'admin'\n";

fn source(dir: &std::path::Path) -> Source {
    let keys = dir.join("keys.toml").display().to_string();
    Source {
        file: Some(dir.join("config.toml")),
        variables: Vec::new(),
        flags: vec![("network.port".into(), "0".into()), ("auth.keys_file".into(), keys)],
    }
}

/// A server as its files say.
pub fn start(dir: &std::path::Path) -> TestServer {
    let source = source(dir);
    let config = source.load().unwrap();
    let mut settings: Settings = config.settings.clone();
    settings.logging.quiet = true;
    let keys = load_keys(&settings.auth).unwrap();
    let server = TestServer::start(settings, keys, Some(demo(8)));
    server.app.configured_by(source, config);
    server
}

pub fn with_key(server: &TestServer, key: &str) -> Client {
    server.stranger().with("x-api-key", key)
}

#[test]
fn keys_are_added_and_revoked_while_requests_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    std::fs::write(dir.path().join("config.toml"), "").unwrap();
    std::fs::write(&file, FIRST).unwrap();
    let server = start(dir.path());
    let body = json!({"prompt": "The", "max_tokens": 2000, "ban_eos_token": true, "stream": true});
    let mut running = with_key(&server, "first-secret").stream("/v1/completions", &body);
    running.until_text();
    // A broken file keeps the old keys.
    std::fs::write(&file, "[[key]]\nname = 'a'\n").unwrap();
    assert!(server.app.reload_keys().is_err());
    assert_eq!(with_key(&server, "first-secret").get("/v1/models").status, 200);
    std::fs::write(&file, SECOND).unwrap();
    // Nobody tells the server: it looks by itself.
    wait_for("the new key", || with_key(&server, "second-secret").get("/v1/models").status == 200);
    // Those who guess are slowed down, and this test guessed a lot.
    let revoked = with_key(&server, "first-secret").get("/v1/models").status;
    assert!([401, 429].contains(&revoked), "{revoked}");
    // Revoked mid-request: what runs goes on.
    let mut last = None;
    while let Some(event) = running.next() {
        last = Some(event);
    }
    assert_eq!(last.as_deref(), Some("[DONE]"));
}

#[test]
fn live_settings_change_and_wrong_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(dir.path().join("keys.toml"), FIRST).unwrap();
    std::fs::write(&file, "[limits]\nmax_n = 1\n").unwrap();
    let server = start(dir.path());
    let two = json!({"prompt": "The", "max_tokens": 1, "n": 2});
    let ask = || with_key(&server, "first-secret").post("/v1/completions", &two);
    assert_eq!(ask().refusal().2.as_deref(), Some("n"));
    std::fs::write(&file, "[limits]\nmax_n = 2\n[network]\nport = 1\nunknown_fields = 'reject'\n")
        .unwrap();
    wait_for("the new limit", || ask().status == 200);
    assert_ne!(server.app.settings.network.port, 1, "ports change at the next start");
    let unknown = json!({"prompt": "The", "max_tokens": 1, "foo": 1});
    assert_eq!(with_key(&server, "first-secret").post("/v1/completions", &unknown).status, 400);
    std::fs::write(&file, "[limits]\nmax_m = 3\n").unwrap();
    assert!(server.app.reload_config().unwrap_err().to_string().contains("max_n"));
    assert_eq!(ask().status, 200, "a wrong file changes nothing");
    std::fs::write(&file, "").unwrap();
    let change = server.app.reload_config().unwrap();
    assert_eq!(change.changed, ["network.unknown_fields", "limits.max_n"]);
    assert_eq!(server.app.settings.limits.max_n, 8, "what nobody says any more is the default");
    std::thread::sleep(Duration::from_millis(1));
}
