//! The server as a command: keys, signals, exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{command, demo_dir, pagella, text};

/// A server that was started, and what it said at first.
pub struct Serving {
    pub child: Child,
    pub address: String,
    pub keys: Vec<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves the demo model, and waits until it is there.
pub fn serve(args: &[&str]) -> Serving {
    let demo = demo_dir();
    start(&[&[text(&demo)], args].concat(), "state=finished")
}

/// Starts a server and waits until it has said something.
fn start(args: &[&str], says: &str) -> Serving {
    start_with(args, &[], says)
}

/// The same, with these variables.
pub fn start_with(args: &[&str], variables: &[(&str, &str)], says: &str) -> Serving {
    let all = [&["serve", "--port", "0"], args].concat();
    let mut command = command(&all);
    command.envs(variables.iter().copied());
    start_command(command, says)
}

/// The same, by a command that was prepared.
pub fn start_command(mut command: Command, says: &str) -> Serving {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (mut address, mut keys) = (None, Vec::new());
    let mut seen = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        seen.push_str(&line);
        if let Some(url) = line.strip_prefix("listening on ") {
            let url = url.strip_prefix("http://").unwrap_or(url);
            address = Some(url.to_owned());
        }
        if line.starts_with("  api") || line.starts_with("  admin") {
            keys.push(line.split_whitespace().nth(1).unwrap().to_owned());
        }
        if line.contains(says) {
            break;
        }
        assert!(!line.contains("failed"), "{line}");
    }
    // Whatever else it says must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let address = address.unwrap_or_else(|| panic!("no address: {seen}"));
    Serving { child, address, keys }
}

pub fn ask(serving: &Serving, path: &str, key: &str, body: Option<&str>) -> String {
    let mut socket = TcpStream::connect(&serving.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let method = if body.is_some() { "POST" } else { "GET" };
    let length = body.map_or(0, str::len);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{}",
        serving.address,
        body.unwrap_or_default()
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_model_is_served_with_new_keys() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let serving = serve(&["--keys", text(&file)]);
    assert_eq!(serving.keys.len(), 2, "new keys are shown");
    let models = ask(&serving, "/v1/models", &serving.keys[0], None);
    assert!(models.starts_with("HTTP/1.1 200") && models.contains("\"id\":\"demo\""), "{models}");
    assert!(models.contains("\"quantization\":\"exl2\""), "{models}");
    let body = r#"{"prompt": "CSS is", "max_tokens": 3}"#;
    let answer = ask(&serving, "/v1/completions", &serving.keys[0], Some(body));
    assert!(answer.contains("\"system_fingerprint\":\"fp_"), "{answer}");
    assert!(ask(&serving, "/v1/models", "wrong", None).starts_with("HTTP/1.1 401"));
    drop(serving);
    let again = serve(&["--keys", text(&file)]);
    assert!(again.keys.is_empty(), "old keys are never shown");
}

#[test]
fn a_folder_of_models_is_served_without_a_model_at_first() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "org/two"] {
        let to = dir.path().join(name);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(demo_dir()).unwrap().flatten() {
            if file.path().is_file() {
                std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
    }
    let keys = dir.path().join("keys.toml");
    let args = ["--model-dir", text(dir.path()), "--keys", text(&keys)];
    let serving = start(&args, "listening on");
    let [api, admin] = [&serving.keys[0], &serving.keys[1]];
    let list = ask(&serving, "/v1/models", admin, None);
    for part in ["\"id\":\"one\"", "\"id\":\"org/two\"", "\"status\":\"unloaded\""] {
        assert!(list.contains(part), "{part} is not in {list}");
    }
    let body = r#"{"prompt": "CSS is", "max_tokens": 3}"#;
    assert!(ask(&serving, "/v1/completions", api, Some(body)).contains("no_model_loaded"));
    let load = |extra: &str| {
        let body = format!("{{\"model_name\": \"org/two\", \"stream\": false{extra}}}");
        ask(&serving, "/v1/model/load", admin, Some(&body))
    };
    let plan = load(", \"dry_run\": true");
    for part in ["\"fits\":true", "\"weights_bytes\":", "\"free_bytes\":", "\"cpu\""] {
        assert!(plan.contains(part), "{part} is not in {plan}");
    }
    let loaded = load(", \"cache_mode\": \"Q8\", \"cache_size\": 1024, \"max_seq_len\": 512");
    assert!(loaded.contains("\"status\":\"finished\""), "{loaded}");
    let answer = ask(&serving, "/v1/completions", api, Some(body));
    assert!(answer.contains("\"model\":\"org/two\""), "{answer}");
    let card = ask(&serving, "/v1/model", api, None);
    for part in ["\"cache_mode\":\"q8\"", "\"cache_size\":1024", "\"max_seq_len\":512"] {
        assert!(card.contains(part), "{part} is not in {card}");
    }
    let broken = dir.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("config.json"), "{\"architectures\": [\"Nothing\"]}").unwrap();
    let body = r#"{"model_name": "broken"}"#;
    let refused = ask(&serving, "/v1/model/load", admin, Some(body));
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(!refused.contains(text(dir.path())), "no place is told: {refused}");
    assert!(ask(&serving, "/v1/completions", api, Some(r#"{"prompt": "x"}"#)).contains("org/two"));
}

#[cfg(unix)]
#[test]
fn signals_reload_keys_and_end_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    // Without a terminal, whatever the tests are run from.
    let mut serving = serve_in("setsid", &[], Stdio::null(), &file);
    let old = serving.keys[0].clone();
    let written = "[[key]]\nname = 'new'\nkey = 'brand-new-key'\nrole = 'api'\n";
    std::fs::write(&file, written).unwrap();
    let signal = |serving: &Serving, name: &str| {
        let id = serving.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    };
    signal(&serving, "HUP");
    let begun = Instant::now();
    while !ask(&serving, "/v1/models", "brand-new-key", None).starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ask(&serving, "/v1/models", &old, None).starts_with("HTTP/1.1 401"));
    signal(&serving, "TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

/// Serves the demo model by way of a program that starts another.
#[cfg(unix)]
fn serve_in(program: &str, args: &[&str], stdin: Stdio, keys: &Path) -> Serving {
    let demo = demo_dir();
    let own = command(&["serve", "--port", "0", text(&demo), "--keys", text(keys)]);
    let mut outer = Command::new(program);
    outer.args(args).arg(own.get_program()).args(own.get_args()).stdin(stdin);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    start_command(outer, "state=finished")
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_in_a_terminal_ends_with_it_and_finishes_what_it_began() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.toml");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inside = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap());
    // Whoever runs the tests may ignore the signal, as `nohup` does; the server must not inherit that.
    let args = ["--default-signal=HUP", "setsid", "--ctty"];
    let mut serving = serve_in("env", &args, Stdio::from(inside.unwrap()), &keys);
    let body = r#"{"prompt": "CSS is", "max_tokens": 200, "ban_eos_token": true, "stream": true}"#;
    let mut socket = TcpStream::connect(&serving.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        serving.address,
        serving.keys[0],
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    // It has begun when a first piece of text is there.
    let (mut answer, mut byte) = (Vec::new(), [0; 1]);
    while !answer.ends_with(b"\"text\":") {
        socket.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    // Its window is closed.
    drop(terminal);
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("data: [DONE]"), "{answer}");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_log_file_that_cannot_be_written_is_said_at_once() {
    let args = ["serve", "demo", "--port", "0", "--disable-auth", "--logging.file", "/no/such/log"];
    let refused = pagella(&args);
    let said = refused.error(2);
    assert!(said.contains("/no/such/log") && said.contains("logging.file"), "{said}");
}

#[test]
fn a_configuration_is_followed_and_short_flags_win() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, config) = (dir.path().join("keys.toml"), dir.path().join("config.toml"));
    let models = demo_dir().parent().unwrap().canonicalize().unwrap();
    let written = format!(
        "[network]\nport = 1\nbase_path = '/llm'\n[auth]\nkeys_file = {keys:?}\n\
         [model]\nmodel_dir = {models:?}\nmodel_name = 'demo'\nmax_seq_len = 300\n"
    );
    std::fs::write(&config, written).unwrap();
    let mut serving = start(&["--config", text(&config)], "state=finished");
    serving.address = serving.address.replace("/llm", "");
    let model = ask(&serving, "/llm/v1/model", &serving.keys[0], None);
    assert!(model.contains("\"id\":\"demo\"") && model.contains("\"max_seq_len\":300"), "{model}");
    assert!(ask(&serving, "/v1/model", &serving.keys[0], None).contains("404"));
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let open = pagella(&["serve", "demo", "--host", "0.0.0.0", "--port", "0", "--disable-auth"]);
    assert!(open.error(2).contains("can be reached by others"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let used = pagella(&["serve", "demo", "--port", &port, "--disable-auth"]);
    assert!(used.error(1).contains("cannot listen"));
    let base = ["serve", "demo", "--port", "0", "--disable-auth", "--base-path", "x/"];
    assert!(pagella(&base).error(2).contains("base path"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    std::fs::write(&file, "[[key]]\nname = 1\n").unwrap();
    let keys = pagella(&["serve", "demo", "--port", "0", "--keys", text(&file)]);
    assert!(keys.error(1).contains("keys.toml"));
    assert!(pagella(&["serve", "no-such-model"]).error(1).contains("no-such-model"));
    assert!(pagella(&["serve"]).error(2).contains("MODEL"));
    let absent = pagella(&["serve", "--model-dir", "/no/such/folder"]);
    assert!(absent.error(2).contains("/no/such/folder"));
}

#[test]
fn a_successor_takes_the_port_and_the_models_of_the_process_before_it() {
    let first = serve(&["--disable-auth"]);
    let port = first.address.rsplit(':').next().unwrap().to_owned();
    drop(first);
    let options = r#"{"cache_size": 512, "cache_mode": "q8", "sampling": {}}"#;
    let legacy = format!(
        r#"{{"port": {port}, "models": [{{"id": "demo", "options": {options}}}], "restarts": [],
            "restarts_total": 1, "description": "the engine of demo failed"}}"#
    );
    let demo = demo_dir();
    let args = [text(&demo), "--disable-auth"];
    let second = start_with(&args, &[("PAGELLA_SUCCEEDS", &legacy)], "state=finished");
    assert!(second.address.ends_with(&format!(":{port}")), "{}", second.address);
    let model = ask(&second, "/v1/model", "", None);
    assert!(model.contains(r#""cache_size":512,"cache_mode":"q8""#), "{model}");
}
