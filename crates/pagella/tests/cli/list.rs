//! `pagella list`: models of the cache, of folders, and demo.

use std::path::Path;

use serde_json::Value;

use crate::support::{Said, command, demo_copy, demo_dir, feed, text};

/// Lists with a Hugging Face cache of its own.
fn list(hub: &Path, args: &[&str]) -> Said {
    let mut command = command(&[&["list"], args].concat());
    command.env("HF_HUB_CACHE", hub);
    feed(command, "")
}

/// The object of one model.
fn find<'a>(models: &'a Value, name: &str) -> &'a Value {
    let found = models.as_array().unwrap().iter().find(|model| model["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {models}"))
}

/// Puts the demo model's files into a folder.
fn put_demo(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let files = std::fs::read_dir(demo_dir()).unwrap().flatten();
    for file in files.filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), dir.join(file.file_name())).unwrap();
    }
}

#[test]
fn models_of_the_cache_of_folders_and_demo_are_listed_with_their_facts() {
    let home = tempfile::tempdir().unwrap();
    let hub = home.path().join("hub");
    let snapshots = hub.join("models--org--tiny/snapshots");
    put_demo(&snapshots.join("abc"));
    put_demo(&snapshots.join("def"));
    let refs = hub.join("models--org--tiny/refs");
    std::fs::create_dir_all(&refs).unwrap();
    std::fs::write(refs.join("main"), "abc").unwrap();
    std::fs::write(refs.join("6.0bpw"), "def").unwrap();
    let folder = home.path().join("mine");
    put_demo(&folder.join("deep/er"));

    let models = list(&hub, &[text(&folder), "--json"]).json();
    let deep = text(&folder.join("deep/er")).to_owned();
    for (name, source) in
        [("demo", "bundled"), ("org/tiny", "hub"), ("org/tiny@6.0bpw", "hub"), (&deep, "folder")]
    {
        let model = find(&models, name);
        assert_eq!((&model["source"], &model["problem"]), (&source.into(), &Value::Null));
        assert_eq!((&model["family"], &model["format"]), (&"llama".into(), &"EXL2".into()));
        let bits = model["bits_per_weight"].as_f64().unwrap();
        assert!((5.5..6.5).contains(&bits), "{model}");
        assert!(model["size_bytes"].as_u64().unwrap() > 10 << 20, "{model}");
    }
    let people = list(&hub, &[text(&folder)]);
    let row = people.out.lines().find(|line| line.contains("org/tiny@6.0bpw")).unwrap();
    for part in ["llama", "EXL2", "6.0", "2048", "MiB"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let run = ["run", "Hi", "-m", "org/tiny@6.0bpw", "--max-new-tokens", "1"];
    let mut run = command(&run);
    run.env("HF_HUB_CACHE", &hub);
    assert_eq!(feed(run, "").code, 0, "what is listed can be written for MODEL");
}

#[test]
fn a_broken_model_is_listed_with_its_reason_and_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let hub = home.path().join("hub");
    std::fs::create_dir_all(hub.join("models--org--begun/blobs")).unwrap();
    let folder = home.path().join("mine");
    let broken: [(&str, &str, &str, &str); 4] = [
        ("no-json", "config.json", "{", "config.json"),
        ("unknown", "config.json", r#"{"architectures": ["NoSuchModel"]}"#, "NoSuchModel"),
        ("other", "model.gguf", "GGUF", "GGUF"),
        ("unnamed", "model.safetensors", "", "config.json"),
    ];
    for (name, file, content, _) in broken {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join(file), content).unwrap();
    }
    let damaged = demo_copy();
    std::fs::write(damaged.path().join("output.safetensors"), "short").unwrap();

    let args = [text(&folder), text(damaged.path())];
    let models = list(&hub, &[&args[..], &["--json"]].concat()).json();
    assert_eq!(find(&models, "demo")["problem"], Value::Null);
    for (name, _, _, reason) in broken {
        let problem =
            find(&models, text(&folder.join(name)))["problem"].as_str().unwrap().to_owned();
        assert!(problem.contains(reason), "{name}: {problem}");
    }
    assert!(find(&models, text(damaged.path()))["problem"].is_string());
    let begun = find(&models, "org/begun")["problem"].as_str().unwrap();
    assert!(begun.contains("pagella pull org/begun"), "{begun}");
    let people = list(&hub, &args);
    assert_eq!(people.code, 0, "{}", people.err);
    assert!(people.out.contains("cannot be used:\n") && people.out.contains("  demo"));
}

#[test]
fn a_folder_that_is_not_there_is_an_error_after_the_list() {
    let home = tempfile::tempdir().unwrap();
    let said = list(home.path(), &["nowhere"]);
    assert!(said.error(1).contains("nowhere"), "{}", said.err);
    assert!(said.out.contains("demo"), "{}", said.out);
}
