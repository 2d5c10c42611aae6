//! `pagella pull` against a hub of our own on this machine.

use std::process::Command;

use serde_json::Value;

use super::support::{Said, command, demo_dir, feed};
use hub::{Hub, Quirk};

mod folder;
mod hub;

const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "output.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// A hub with the demo model, a README that nobody wants, and an empty cache.
struct Place {
    hub: Hub,
    home: tempfile::TempDir,
}

impl Place {
    fn new(quirk: Quirk) -> Self {
        let mut files: Vec<(String, Vec<u8>)> = FILES
            .iter()
            .map(|name| (name.to_string(), std::fs::read(demo_dir().join(name)).unwrap()))
            .collect();
        files.push(("README.md".into(), b"not needed".to_vec()));
        files.push(("nested/config.json".into(), b"{}".to_vec()));
        Place { hub: Hub::start(files, quirk), home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("HF_HOME", self.home.path()).env("HF_ENDPOINT", self.hub.address());
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        feed(self.command(args), "")
    }

    fn pull(&self) -> Value {
        self.run(&["pull", "org/demo", "--json"]).json()
    }
}

fn demo_bytes() -> u64 {
    FILES.iter().map(|name| std::fs::metadata(demo_dir().join(name)).unwrap().len()).sum()
}

#[test]
fn a_pulled_model_runs_under_its_id_and_is_not_fetched_twice() {
    let place = Place::new(Quirk::None);
    let pulled = place.pull();
    assert_eq!(pulled["files"], serde_json::json!(FILES));
    assert_eq!(pulled["bytes_fetched"].as_u64(), Some(demo_bytes()));
    let run = ["run", "Hi", "-m", "org/demo", "--json", "--greedy", "--max-new-tokens", "3"];
    assert_eq!(place.run(&run).json()["new_tokens"], 3);
    assert_eq!(place.pull()["bytes_fetched"], 0);
    assert!(!place.hub.requests().iter().any(|r| r.contains("README") || r.contains("nested")));
    let doctor = place.run(&["doctor", "--json"]).json();
    assert_eq!(doctor["hub_models"], serde_json::json!(["org/demo"]));
}

#[test]
fn a_connection_that_breaks_is_resumed_within_one_run() {
    let place = Place::new(Quirk::BreakOnce { file: "output.safetensors", after: 3_000_000 });
    let pulled = place.pull();
    assert_eq!(pulled["bytes_fetched"].as_u64(), Some(demo_bytes()), "nothing twice");
    let ranges: Vec<String> =
        place.hub.requests().into_iter().filter(|r| r.contains("bytes=")).collect();
    assert_eq!(ranges.len(), 1, "{ranges:?}");
    assert_eq!(place.run(&["inspect", "org/demo"]).code, 0);
}

#[test]
fn an_interrupted_pull_is_no_model_and_resumes_in_the_next_run() {
    let place = Place::new(Quirk::BreakAlways { file: "output.safetensors", after: 3_000_000 });
    let error = place.run(&["pull", "org/demo", "--attempts", "1"]);
    assert!(error.error(1).contains("resumes"), "{}", error.err);
    assert!(place.run(&["inspect", "org/demo"]).error(1).contains("pagella pull"));
    let stored = part_bytes(&place);
    assert!(stored >= 3_000_000, "{stored}");
    place.hub.set_quirk(Quirk::None);
    let fetched = place.pull()["bytes_fetched"].as_u64().unwrap();
    assert!(fetched < demo_bytes() - 3_000_000, "{fetched}");
    assert_eq!(place.run(&["inspect", "org/demo"]).code, 0);
}

/// Bytes of the unfinished file.
fn part_bytes(place: &Place) -> u64 {
    let blobs = place.home.path().join("hub/models--org--demo/blobs");
    let parts = std::fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().path());
    let parts = parts.filter(|path| path.extension().is_some_and(|e| e == "part"));
    parts.map(|path| std::fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn a_server_without_ranges_starts_over_instead_of_appending() {
    let place = Place::new(Quirk::BreakOnceAndIgnoreRanges {
        file: "output.safetensors",
        after: 2_000_000,
    });
    let fetched = place.pull()["bytes_fetched"].as_u64();
    assert_eq!(fetched, Some(demo_bytes() + 2_000_000), "the broken start and one whole file");
    let run = ["run", "Hi", "-m", "org/demo", "--json", "--greedy", "--max-new-tokens", "2"];
    assert_eq!(place.run(&run).json()["new_tokens"], 2);
}

#[test]
fn wrong_contents_are_noticed_and_not_kept() {
    let place = Place::new(Quirk::Corrupt { file: "output.safetensors" });
    let said = place.run(&["pull", "org/demo"]);
    assert!(said.error(1).contains("damaged"), "{}", said.err);
    assert!(place.run(&["inspect", "org/demo"]).error(1).contains("pagella pull"));
    place.hub.set_quirk(Quirk::None);
    place.pull();
}

#[test]
fn refusals_are_explained() {
    let place = Place::new(Quirk::None);
    let missing = place.run(&["pull", "org/other"]);
    assert!(missing.error(1).contains("404"), "{}", missing.err);
    let branch = place.run(&["pull", "org/demo@no-such-branch"]);
    assert!(branch.error(1).contains("404"), "{}", branch.err);
    let mut nowhere = place.command(&["pull", "org/demo"]);
    // A port that was just closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    nowhere.env("HF_ENDPOINT", format!("http://127.0.0.1:{port}"));
    assert!(feed(nowhere, "").error(1).contains("connection"));
}

#[test]
fn hostile_file_names_and_etags_never_leave_the_cache() {
    for quirk in [Quirk::HostileEtag, Quirk::HostileCommit] {
        let place = Place::new(quirk);
        place.run(&["pull", "org/demo"]).error(1);
        let outside = place.home.path().join("hub/evil");
        assert!(!outside.exists());
    }
    let files = vec![("../../evil.json".to_owned(), b"{}".to_vec())];
    let place = Place { hub: Hub::start(files, Quirk::None), home: tempfile::tempdir().unwrap() };
    assert!(place.run(&["pull", "org/demo"]).error(1).contains("config.json"));
}

#[test]
fn the_token_goes_to_the_endpoint_and_not_where_files_are_redirected_to() {
    let place = Place::new(Quirk::Redirect);
    let mut command = place.command(&["pull", "org/demo", "--json"]);
    command.env("HF_TOKEN", "secret-token");
    feed(command, "").json();
    let (elsewhere, here): (Vec<String>, Vec<String>) =
        place.hub.requests().into_iter().partition(|r| r.contains("/elsewhere/"));
    assert!(!elsewhere.is_empty() && elsewhere.iter().all(|r| !r.contains("secret-token")));
    assert!(here.iter().all(|r| r.contains("secret-token")), "{here:?}");
}
