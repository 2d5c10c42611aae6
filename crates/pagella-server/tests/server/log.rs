//! What is written down: one line per request, and more where the operator asks for it; keys never.

use std::path::{Path, PathBuf};

use pagella_server::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::folder::{Fault, ModelFolder};
use crate::load::{LOAD, long};
use crate::reload;
use crate::support::{ADMIN, API, TestServer, demo, keys, settings, wait_for};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Settings with a log file of JSON lines.
fn logging(dir: &Path) -> Settings {
    let mut settings = settings();
    settings.logging.json = true;
    settings.logging.file = Some(dir.join("log"));
    settings
}

fn text(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Events of a kind.
fn events(dir: &Path, event: &str) -> Vec<Value> {
    let text = text(dir);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == event).collect()
}

/// Waits for the line of a request; it comes when the last byte was sent.
fn request(dir: &Path, id: &str) -> Value {
    let find = || events(dir, "request").into_iter().find(|line| line["id"] == id);
    wait_for("the line of a request", || find().is_some());
    find().unwrap()
}

fn talk(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "a zebra"}], "max_tokens": 3});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// A server that is configured by a file, and a way to change it.
struct Configured {
    dir: TempDir,
    server: TestServer,
}

impl Configured {
    fn write(dir: &Path, lines: &str) {
        let log = dir.join("log").display().to_string();
        let file = format!("[logging]\nformat = 'json'\nfile = '{log}'\n{lines}\n");
        std::fs::write(dir.join("config.toml"), file).unwrap();
    }

    fn start(lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys.toml"), reload::FIRST).unwrap();
        Self::write(dir.path(), lines);
        let server = reload::start(dir.path());
        Configured { dir, server }
    }

    fn change(&self, lines: &str) {
        Self::write(self.dir.path(), lines);
        // Also noticed without this, after a while.
        self.server.app.reload_config().unwrap();
    }

    /// Asks under an id, and waits for the end.
    fn ask(&self, id: &str, path: &str, body: &Value) {
        let client = reload::with_key(&self.server, "first-secret").with("x-request-id", id);
        let answer = client.with("authorization", "Bearer first-secret").post(path, body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        request(self.dir.path(), id);
    }
}

#[test]
fn prompts_parameters_and_requests_are_shown_while_that_is_on() {
    let secrets = json!({"metadata": {"token": "t-1234567", "note": "mine is first-secret"},
        "top_k": 7});
    for (switch, shown) in [
        ("log_prompt", &["prompt"][..]),
        ("log_generation_params", &["params"]),
        ("log_requests", &["headers", "body"]),
    ] {
        let configured = Configured::start("");
        let dir = configured.dir.path();
        configured.ask("before", CHAT, &talk(secrets.clone()));
        assert!(!text(dir).contains("zebra") && !text(dir).contains("top_k"), "{switch}");
        configured.change(&format!("{switch} = true"));
        configured.ask("during", CHAT, &talk(secrets.clone()));
        configured.ask("plain", COMPLETIONS, &json!({"prompt": "a yak", "max_tokens": 2}));
        configured.change(&format!("{switch} = false"));
        configured.ask("after", CHAT, &talk(secrets.clone()));
        for kind in ["prompt", "params", "headers", "body"] {
            let ids: Vec<Value> = events(dir, kind).iter().map(|line| line["id"].clone()).collect();
            let expected: &[Value] = match shown.contains(&kind) {
                true => &[json!("during"), json!("plain")],
                false => &[],
            };
            assert_eq!(ids, expected, "{switch}: {kind}");
        }
        let text = text(dir);
        assert!(!text.contains("first-secret") && !text.contains("t-1234567"), "{switch}: {text}");
        let of = |kind: &str| events(dir, kind).swap_remove(0);
        match switch {
            "log_prompt" => {
                let prompt = of("prompt")["text"].as_str().unwrap().to_owned();
                // As the engine gets it: with what the template writes around it.
                assert!(prompt.contains("a zebra") && prompt.len() > "a zebra".len(), "{prompt}");
                let plain = &events(dir, "prompt")[1]["text"];
                assert!(plain.as_str().unwrap().ends_with("a yak"), "{plain}");
            }
            "log_generation_params" => {
                let params = &of("params")["params"];
                assert_eq!(
                    (&params["sampling"]["top_k"], &params["max_tokens"]),
                    (&json!(7), &json!(3))
                );
            }
            _ => {
                let headers = &of("headers")["headers"];
                assert_eq!(headers["x-api-key"], "[redacted]");
                assert_eq!(headers["authorization"], "[redacted]");
                assert_eq!(headers["content-type"], "application/json");
                let body = &of("body")["body"];
                assert_eq!(body["messages"][0]["content"], "a zebra");
                assert_eq!(body["metadata"]["token"], "[redacted]");
                assert_eq!(body["metadata"]["note"], "mine is [redacted]");
            }
        }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn conversations_are_kept_in_a_folder_while_that_is_on() {
    let configured = Configured::start("");
    let folder = configured.dir.path().join("kept").join("here");
    let on = format!("log_chat_completion_requests = '{}'", folder.display());
    configured.ask("before", CHAT, &talk(json!({})));
    configured.change(&on);
    configured.ask("..", CHAT, &talk(json!({"metadata": {"api_key": "k-1234567"}})));
    configured.ask("ant", "/v1/messages", &talk(json!({"stream": true, "max_tokens": 2})));
    configured.ask("text", COMPLETIONS, &json!({"prompt": "a yak", "max_tokens": 2}));
    configured.change("");
    configured.ask("after", CHAT, &talk(json!({})));
    assert_eq!(names(&folder), ["...json", "...txt", "ant.json", "ant.txt"]);
    assert_eq!(names(&configured.dir.path().join("kept")), ["here"]);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let kept: Value = serde_json::from_str(&read("...json")).unwrap();
    assert_eq!(
        (&kept["id"], &kept["route"], &kept["key"]),
        (&json!(".."), &json!(CHAT), &json!("a"))
    );
    assert_eq!(kept["body"]["messages"][0]["content"], "a zebra");
    assert_eq!(kept["body"]["metadata"]["api_key"], "[redacted]");
    assert!(kept["time"].as_str().unwrap().starts_with("20"));
    assert!(read("...txt").contains("a zebra") && read("...txt").len() > "a zebra".len());
    #[cfg(unix)]
    for name in names(&folder) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // A folder that cannot be: the log says so, the request does not care.
    let file = configured.dir.path().join("config.toml");
    configured.change(&format!("log_chat_completion_requests = '{}'", file.display()));
    configured.ask("nowhere", CHAT, &talk(json!({})));
    let issue = events(configured.dir.path(), "issue").pop().unwrap();
    assert_eq!(issue["what"], "log_chat_completion_requests");
    assert!(issue["detail"].as_str().unwrap().starts_with("nowhere: "), "{issue}");
}

#[test]
fn administrators_see_where_an_error_came_from_if_that_is_on() {
    let folder = ModelFolder::with(&["a"]);
    for on in [false, true] {
        let mut own = settings();
        own.network.send_tracebacks = on;
        let server = TestServer::with_folder(own, &folder);
        folder.fail_at(Fault::Open);
        let ask = json!({"model_name": "a", "stream": false});
        let failed = server.client(ADMIN).post(LOAD, &ask).json()["error"].clone();
        assert_eq!(failed["code"], "internal_error");
        assert!(!failed["message"].as_str().unwrap().contains("ordered"), "{failed}");
        match on {
            true => assert!(failed["trace"][0].as_str().unwrap().contains("ordered"), "{failed}"),
            false => assert!(failed.get("trace").is_none(), "{failed}"),
        }
    }
    let mut own = settings();
    own.network.send_tracebacks = true;
    let server = TestServer::start(own, keys(), Some(demo(8)));
    let bad = talk(json!({"regex_pattern": "("}));
    let trace = |key| server.client(key).post(CHAT, &bad).json()["error"].get("trace").cloned();
    assert!(trace(ADMIN).unwrap()[0].is_string());
    assert_eq!(trace(API), None, "for administrators alone");
    let body = json!({"max_tokens": 3, "messages": [{"role": "user", "content": "a"}],
        "regex_pattern": "("});
    let failed = server.client(ADMIN).post("/v1/messages", &body).json();
    assert!(failed["error"]["trace"][0].is_string(), "{failed}");
}

#[test]
fn a_request_is_one_line_that_says_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(logging(dir.path()), keys(), Some(demo(8)));
    let client = server.client(API).with("user-agent", "curious/1.0");
    for stream in [false, true] {
        let id = format!("stream-{stream}");
        let body = talk(json!({"n": 2, "stream": stream, "ban_eos_token": true, "nonsense": 1}));
        assert_eq!(client.clone().with("x-request-id", &id).post(CHAT, &body).status, 200);
        let line = request(dir.path(), &id);
        for (name, value) in [
            ("level", json!("info")),
            ("key", json!("alice")),
            ("route", json!(CHAT)),
            ("status", json!(200)),
            ("completion", json!(6)),
            ("finish", json!("length")),
            ("eos", json!("max_new_tokens")),
            ("model", json!("demo")),
            ("n", json!(2)),
            ("warn", json!(["ignored nonsense"])),
            ("stream", if stream { json!(true) } else { Value::Null }),
        ] {
            assert_eq!(line[name], value, "{name}: {line}");
        }
        for name in ["ms", "queue_ms", "ttft_ms", "prefill_ms", "decode_ms", "prompt", "bytes_out"]
        {
            assert!(line[name].is_u64(), "{name}: {line}");
        }
        assert!(line["ttft_ms"].as_u64() <= line["ms"].as_u64(), "{line}");
        assert!(line["peer"].is_string() && line["ua_hash"].as_str().unwrap().len() == 16);
    }
    assert!(!text(dir.path()).contains("curious"), "the name itself is not shown");
    assert!(!text(dir.path()).contains("zebra") && !text(dir.path()).contains(API));
    // Those who leave, and those who are ended.
    let left = client.clone().with("x-request-id", "left");
    let mut stream = left.stream(COMPLETIONS, &long());
    stream.until_text();
    drop(stream);
    assert_eq!(request(dir.path(), "left")["status"], 499);
    let mut stream = client.clone().with("x-request-id", "ended").stream(COMPLETIONS, &long());
    stream.until_text();
    client.post("/v1/requests/ended/cancel", &json!({})).good();
    stream.rest();
    let line = request(dir.path(), "ended");
    assert_eq!((&line["finish"], &line["eos"]), (&json!("stop"), &json!("cancelled")));
    let cancels: Vec<Value> = events(dir.path(), "cancel");
    let told =
        |cancel: &Value| (cancel["id"].clone(), cancel["phase"].clone(), cancel["cause"].clone());
    let expected = [("left", "disconnect"), ("ended", "asked")]
        .map(|(id, cause)| (json!(id), json!("decode"), json!(cause)));
    assert_eq!(cancels.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn a_load_is_told_from_plan_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ModelFolder::with(&["a"]);
    let server = TestServer::with_folder(logging(dir.path()), &folder);
    server.client(ADMIN).post(LOAD, &json!({"model_name": "a", "stream": false})).good();
    let lines = events(dir.path(), "load");
    assert!(lines.iter().all(|line| line["model"] == "a"));
    assert!(lines[0]["memory"]["devices"].is_array(), "{}", lines[0]);
    assert_eq!(lines[1]["state"], "started");
    let percents: Vec<u64> = lines.iter().filter_map(|line| line["percent"].as_u64()).collect();
    assert!(percents.is_sorted() && percents.last() == Some(&100), "{percents:?}");
    let last = lines.last().unwrap();
    assert!(last["state"] == "finished" && last["seconds"].is_f64(), "{last}");
    let metrics = server.stranger().get("/metrics").text().to_owned();
    assert!(metrics.contains("\npagella_model_load_seconds_count 1\n"));
}

/// Where nothing is written, nothing is made.
#[test]
fn no_file_is_made_that_nobody_asked_for() {
    let dir: TempDir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("log");
    let mut own = logging(dir.path());
    own.logging.file = None;
    let server = TestServer::start(own, keys(), Some(demo(8)));
    server.client(API).post(CHAT, &talk(json!({}))).good();
    assert!(!path.exists());
}

#[test]
fn a_log_file_that_cannot_be_written_is_an_error_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = vec![dir.path().to_owned(), dir.path().join("no/such/folder/log")];
    if cfg!(target_os = "linux") {
        bad.push(PathBuf::from("/dev/full"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for path in bad {
        let mut own = settings();
        own.logging.file = Some(path.clone());
        let bound = runtime.block_on(pagella_server::Server::bind(own, keys()));
        let error = bound.err().unwrap_or_else(|| panic!("{}", path.display())).to_string();
        assert!(error.contains("logging.file"), "{error}");
    }
}

#[test]
#[cfg(unix)]
fn a_log_file_that_goes_away_is_an_issue_in_health_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("logs");
    std::fs::create_dir(&folder).unwrap();
    let server = TestServer::start(logging(&folder), keys(), Some(demo(8)));
    let issues = || server.stranger().get("/health").good()["issues"].clone();
    assert_eq!(issues(), json!([]));
    std::fs::remove_dir_all(&folder).unwrap();
    wait_for("it to be noticed", || issues() != json!([]));
    let told = issues();
    assert!(told[0]["description"].as_str().unwrap().contains("log file"), "{told}");
    assert!(!told.to_string().contains("logs"), "no place is told: {told}");
    std::fs::create_dir(&folder).unwrap();
    wait_for("it to come back", || issues() == json!([]));
    server.client(API).with("x-request-id", "after").get("/v1/models");
    assert_eq!(request(&folder, "after")["status"], 200);
}
