//! Whom the server talks to: its clients, through the sockets that were asked for, and nobody else.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::serve::{ask, serve, start_command, start_with};
use crate::support::{command, demo_dir, text};

/// Sockets on which a process listens, by what it has open.
#[cfg(target_os = "linux")]
fn listening(id: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let inodes: Vec<String> = links
        .filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(text.to_owned())
        })
        .collect();
    let own = |inode: &str| inodes.iter().any(|known| known == inode);
    let mut sockets = Vec::new();
    let table = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{id}/net/{name}")).unwrap_or_default();
        let lines = text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned));
        lines.map(Iterator::collect::<Vec<String>>).collect::<Vec<_>>()
    };
    for name in ["tcp", "tcp6", "udp", "udp6"] {
        for words in table(name) {
            // State 0A is listening; sockets of UDP that were bound have 07.
            if words.len() > 9 && ["0A", "07"].contains(&&*words[3]) && own(&words[9]) {
                sockets.push(format!("{name} {}", words[1]));
            }
        }
    }
    for words in table("unix") {
        // The flag of sockets that accept.
        if words.len() > 6 && words[3] == "00010000" && own(&words[6]) {
            sockets.push(format!("unix {}", words.get(7).map_or("", String::as_str)));
        }
    }
    sockets
}

#[cfg(target_os = "linux")]
#[test]
fn no_unauthenticated_internal_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let serving = serve(&["--keys", text(&file), "--metrics.listen", "127.0.0.1:0"]);
    let body = r#"{"prompt": "CSS is", "max_tokens": 3}"#;
    assert!(ask(&serving, "/v1/completions", &serving.keys[0], Some(body)).contains("200 OK"));
    let sockets = listening(serving.child.id());
    assert_eq!(sockets.len(), 2, "one for everything, one for counts: {sockets:?}");
    assert!(sockets.iter().all(|socket| socket.starts_with("tcp 0100007F:")), "{sockets:?}");
}

/// There are no peers: one process, no socket but those for clients, no codec for anything but JSON.
/// What is no request on one of these sockets is thrown away.
#[cfg(target_os = "linux")]
#[test]
fn peer_messages_bounds_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let serving = serve(&["--keys", text(&file), "--metrics.listen", "127.0.0.1:0"]);
    let id = serving.child.id();
    for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        assert_eq!(children, "", "one process");
    }
    let ports: Vec<u16> = listening(id)
        .iter()
        .map(|socket| u16::from_str_radix(socket.rsplit(':').next().unwrap(), 16).unwrap())
        .collect();
    assert_eq!(ports.len(), 2);
    let garbage: [&[u8]; 6] = [
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94",
        b"\xff\xff\xff\xff\xff\xff\xff\xff shape",
        b"\x00\x00\x00\x04\xff\xfe\xfd\xfc",
        b"RPC\x00\x01\x7f\xff\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
        &[0; 4096],
    ];
    for port in ports {
        for bytes in garbage {
            let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            socket.write_all(bytes).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            // Closed, or told that it is no request.
            let _ = socket.read_to_end(&mut answer);
            assert!(
                answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
                "{bytes:?}: {answer:?}"
            );
        }
    }
    let body = r#"{"prompt": "CSS is", "max_tokens": 3}"#;
    assert!(ask(&serving, "/v1/completions", &serving.keys[0], Some(body)).contains("200 OK"));
    for codec in [
        "bincode",
        "capnp",
        "prost",
        "rmp",
        "rmp-serde",
        "tonic",
        "tarpc",
        "zmq",
        "nng",
        "serde-pickle",
    ] {
        assert!(!locked().iter().any(|name| name == codec), "{codec} has no place here");
    }
}

/// Crates that are linked into anything here.
fn locked() -> Vec<String> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let names = lock.lines().filter_map(|line| line.strip_prefix("name = \""));
    names.map(|name| name.trim_end_matches('"').to_owned()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Sources of the program, without tests: file below `crates`, text.
fn sources() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(&crates).unwrap().flatten().map(|dir| dir.path().join("src")).collect();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                dirs.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let whole = std::fs::read_to_string(&path).unwrap();
                let text = whole.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
                let below = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
                found.push((below.replace('\\', "/"), text));
            }
        }
    }
    found
}

/// Who may ask where the program lies, start one, or make something that can be entered: the demo model
/// may lie beside the program, a process that lost its device starts the same file again, a comparison
/// starts the other program that it was given, and the folders of the page's documents and of logged
/// conversations are their owner's.
const MAY: &[(&str, &str)] = &[
    ("pagella/src/model_ref.rs", "current_exe"),
    ("pagella/src/commands/serve/process.rs", "current_exe"),
    ("pagella/src/commands/serve/process.rs", "process::Command"),
    ("pagella/src/commands/bench/against.rs", "process::Command"),
    ("pagella-http/src/ui_store.rs", "0o7"),
    ("pagella-http/src/log/conversation.rs", "0o7"),
];

/// Nothing here fetches programs, and nothing could put one in the place of another: no crate that
/// does it, one place that opens connections, one host that is named, nobody who asks where the
/// program lies or starts another. The program is the same after it has served.
#[test]
fn no_self_update() {
    for updater in
        ["self_update", "self-replace", "axoupdater", "cargo-packager-updater", "update-informer"]
    {
        assert!(!locked().iter().any(|name| name == updater), "{updater} has no place here");
    }
    let all = sources();
    assert!(all.len() > 300, "the sources are found: {}", all.len());
    for (file, text) in &all {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for opens in ["ureq::", "TcpStream::connect", "UdpSocket"] {
                let may = file.starts_with("pagella/src/hub");
                assert!(may || !line.contains(opens), "{file} opens connections: {line}");
            }
            // Where the program lies, another program, a file that may be run.
            for replaces in ["current_exe", "process::Command", "0o7"] {
                let may = MAY.contains(&(file.as_str(), replaces));
                assert!(may || !line.contains(replaces), "{file}: {line}");
            }
            for url in line.split("https://").skip(1) {
                let host: String = url
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c))
                    .collect();
                let known = host.is_empty() || HOSTS.contains(&host.as_str());
                assert!(known, "{file} names {host}: {line}");
            }
        }
    }
    let program = env!("CARGO_BIN_EXE_pagella");
    let before = std::fs::read(program).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let serving = serve(&["--keys", text(&dir.path().join("keys.toml"))]);
    let body = r#"{"prompt": "CSS is", "max_tokens": 3}"#;
    assert!(ask(&serving, "/v1/completions", &serving.keys[0], Some(body)).contains("200 OK"));
    drop(serving);
    assert!(std::fs::read(program).unwrap() == before, "the program is another");
}

/// Hosts that may be named in code: the hub's, and where this project is.
const HOSTS: [&str; 2] = ["huggingface.co", "github.com"];

/// Everything but fetching works without anyone being asked: every address that could be asked leads
/// to a socket that counts.
#[test]
fn offline_nobody_is_asked() {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let place = format!("http://{}", trap.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let names =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "HF_ENDPOINT"];
    let variables: Vec<(&str, &str)> = names.iter().map(|name| (*name, place.as_str())).collect();
    let demo = demo_dir();
    let args = [text(&demo), "--keys", text(&file)];
    let serving = start_with(&args, &variables, "state=finished");
    let (api, admin) = (&serving.keys[0], &serving.keys[1]);
    for (path, body) in FEATURES {
        assert!(ask(&serving, path, api, Some(body)).contains("200 OK"), "{path}");
    }
    for path in LOOKS {
        assert!(ask(&serving, path, admin, None).contains("200 OK"), "{path}");
    }
    assert!(trap.accept().is_err(), "someone was asked");
}

/// What must work without a network, to be posted.
const FEATURES: &[(&str, &str)] = &[
    ("/v1/completions", r#"{"prompt": "CSS is", "max_tokens": 3}"#),
    ("/v1/completions", r#"{"prompt": "CSS is", "max_tokens": 8, "regex_pattern": "[a-z]{4}"}"#),
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": true}"#,
    ),
    ("/v1/responses", r#"{"input": "Hi", "max_output_tokens": 16}"#),
    ("/v1/messages", r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}"#),
    ("/v1/token/encode", r#"{"text": "Hi"}"#),
    ("/apply-template", r#"{"messages": [{"role": "user", "content": "Hi"}]}"#),
];

/// The same, to be looked at.
const LOOKS: &[&str] = &[
    "/",
    "/health",
    "/metrics",
    "/openapi.json",
    "/v1/cache/pages",
    "/v1/loras",
    "/v1/models",
    "/v1/requests",
    "/v1/stats",
    "/v1/templates",
];

/// Whether a program is there and does what is asked.
fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let quiet = command.args(args).stdout(std::process::Stdio::null());
    quiet.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The server on a machine without a network, not even with itself: it listens on a socket in the file
/// system. Everything works, and nothing tries to reach anyone.
#[cfg(target_os = "linux")]
#[test]
fn offline_means_offline() {
    if !works("unshare", &["--user", "--map-root-user", "--net", "true"]) {
        println!(
            "SKIPPED: `unshare` cannot take the network away here: only \
            offline_nobody_is_asked was checked"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [socket, keys, log, calls] =
        ["socket", "keys.toml", "log", "calls"].map(|name| dir.path().join(name));
    let models = dir.path().join("models");
    let model = models.join("demo");
    std::fs::create_dir_all(&model).unwrap();
    for file in std::fs::read_dir(demo_dir()).unwrap().flatten().filter(|f| f.path().is_file()) {
        std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
    }
    let host = format!("unix:{}", socket.display());
    let own = command(&[
        "serve",
        text(&model),
        "--host",
        &host,
        "--keys",
        text(&keys),
        "--model-dir",
        text(&models),
        "--logging.file",
        text(&log),
    ]);
    // Calls that connect are written down, where they can be.
    let traced = works("strace", &["-qq", "-e", "trace=connect", "-o", "/dev/null", "true"]);
    if !traced {
        println!("SKIPPED: without `strace` attempts to connect are seen only by their failures");
    }
    let mut offline = Command::new("unshare");
    offline.args(["--user", "--map-root-user", "--net"]);
    if traced {
        // The tracer stands aside, so that what was started is the server itself.
        offline.args(["strace", "-D", "-f", "-qq", "-e", "trace=connect", "-o"]).arg(&calls);
    }
    offline.arg(own.get_program()).args(own.get_args());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => offline.env(name, value),
            None => offline.env_remove(name),
        };
    }
    let mut serving = start_command(offline, "state=finished");
    let ask = |path: &str, key: &str, body: Option<&str>| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let method = if body.is_some() { "POST" } else { "GET" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
            body.map_or(0, str::len),
            body.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (api, admin) = (serving.keys[0].clone(), serving.keys[1].clone());
    for (path, body) in FEATURES {
        let answer = ask(path, &api, Some(body));
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    for path in LOOKS {
        assert!(ask(path, &admin, None).starts_with("HTTP/1.1 200"), "{path}");
    }
    let unload = ask("/v1/model/unload", &admin, Some("{}"));
    assert!(unload.starts_with("HTTP/1.1 200"), "{unload}");
    let load = ask("/v1/model/load", &admin, Some(r#"{"model_name": "demo", "stream": false}"#));
    assert!(load.contains("\"status\":\"finished\""), "{load}");
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.contains("/v1/completions"), "the log is read: {told}");
    for line in told.lines() {
        assert!(!line.contains(" warn ") && !line.contains(" error "), "{line}");
    }
    let outside = || {
        let calls = std::fs::read_to_string(&calls).unwrap_or_default();
        calls.lines().filter(|line| line.contains("AF_INET")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(outside(), [""; 0], "someone was asked");
    // Fetching fails, says so, and hurts nothing.
    let body = r#"{"repo_id": "org/name", "timeout": 20}"#;
    let answer = ask("/v1/download", &admin, Some(body));
    assert!(!answer.starts_with("HTTP/1.1 200") || answer.contains("error"), "{answer}");
    assert!(ask("/v1/completions", &api, Some(FEATURES[0].1)).starts_with("HTTP/1.1 200"));
    if traced {
        assert!(!outside().is_empty(), "what connects is written down: {answer}");
    }
    assert!(serving.child.try_wait().unwrap().is_none());
}
