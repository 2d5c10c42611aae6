//! The configuration as a command shows it, and as a server takes it.

use std::path::Path;

use pagella_server::config::entries;

use crate::support::{Said, command, feed, text};

/// Runs in a folder of its own.
fn run_in(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = command(args);
    command.current_dir(dir).envs(variables.iter().copied());
    feed(command, "")
}

#[test]
fn a_sample_is_fine_and_mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(dir.path(), args, &[]);
    let sample = run(&["config", "sample"]);
    assert!(
        sample.code == 0 && sample.out.contains("[network]") && sample.out.contains("#port = 5000")
    );
    assert_eq!(run(&["config", "check"]).out, "defaults: fine\n");
    std::fs::write(dir.path().join("config.toml"), &sample.out).unwrap();
    assert_eq!(run(&["config", "check"]).out, "config.toml: fine\n");
    std::fs::write(dir.path().join("config.toml"), "[network]\nprot = 1\n[lora]\nloras = ['x']\n")
        .unwrap();
    let wrong = run(&["config", "check"]);
    assert!(wrong.error(2).contains("\"network.port\""), "{}", wrong.err);
    let other = dir.path().join("other.toml");
    std::fs::write(&other, "[model]\nvision = true\n[lora]\nloras = ['x']\n").unwrap();
    let unbuilt = run(&["config", "check", "--config", text(&other)]);
    assert!(unbuilt.error(2).contains("model.vision is not built"), "{}", unbuilt.err);
    assert_eq!(run(&["config", "check", "--config", "absent.toml"]).code, 2);
}

#[test]
fn every_place_is_heard_and_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("config.toml"),
        "[network]\nport = 1\nhost = '::1'\n[limits]\nmax_n = 3\n",
    )
    .unwrap();
    let variables = [("PAGELLA_NETWORK_PORT", "2"), ("TABBY_LOGGING_LOG_PROMPT", "true")];
    let shown = run_in(dir.path(), &["config", "show", "--max-n", "4"], &variables);
    for line in [
        "port = 2  # PAGELLA_NETWORK_PORT",
        "host = \"::1\"  # config.toml",
        "max_n = 4  # --limits.max_n",
        "max_queue = 2048  # default",
        "log_prompt = true  # TABBY_LOGGING_LOG_PROMPT",
    ] {
        assert!(shown.out.lines().any(|shown| shown == line), "{line}\n{}", shown.out);
    }
}

#[test]
fn a_file_of_tabbyapi_is_turned_into_ours() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yml");
    std::fs::write(&file, "network:\n  port: 5001\nmodel:\n  vision: true\n  new: 1\n").unwrap();
    let imported = run_in(dir.path(), &["config", "import", "config.yml"], &[]);
    assert_eq!((imported.code, imported.out.as_str()), (0, "[network]\nport = 5001\n"));
    assert_eq!(
        imported.err.lines().filter(|line| line.starts_with("note: ")).count(),
        2,
        "{}",
        imported.err
    );
    // In place it is read, with a warning.
    let shown = run_in(dir.path(), &["config", "show"], &[]);
    assert!(shown.err.contains("config import") && shown.out.contains("port = 5001  # config.yml"));
    std::fs::write(&file, "a: !!python/object x").unwrap();
    assert!(run_in(dir.path(), &["config", "import", "config.yml"], &[]).error(2).contains("tags"));
}

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");

/// A table of every section, from the rows that the server reads its settings by.
fn tables() -> String {
    let (mut text, mut section) = (String::new(), "");
    for entry in entries().filter(|entry| entry.built) {
        if entry.section != section {
            section = entry.section;
            text += &format!("\n## `[{section}]`\n\n| key | default | |\n|---|---|---|\n");
        }
        let default = match entry.default.as_str() {
            "" => "".to_owned(),
            default => format!("`{default}`"),
        };
        let live = if entry.live { " \\*" } else { "" };
        text += &format!("| `{}` | {default} | {}{live} |\n", entry.key, entry.doc);
    }
    text
}

#[test]
fn the_guide_lists_every_key_with_the_default_that_holds() {
    let text = std::fs::read_to_string(GUIDE).unwrap();
    let (before, found) = text.split_once("<!-- settings -->\n").unwrap();
    if std::env::var_os("PAGELLA_BLESS").is_some() {
        std::fs::write(GUIDE, format!("{before}<!-- settings -->\n{}", tables())).unwrap();
        return;
    }
    assert_eq!(found, tables(), "run `PAGELLA_BLESS=1 cargo test -p pagella --test cli guide`");
}

#[test]
fn help_shows_the_defaults_of_the_settings() {
    let help = crate::support::pagella(&["serve", "--help"]).out;
    // As one line, because help is broken where the terminal ends.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for entry in entries().filter(|entry| entry.built && !entry.default.is_empty()) {
        let said = format!("{} [default: {}]", entry.doc, entry.default);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&said), "{said}");
    }
    assert!(help.contains("[default: model.cache_size, else what memory allows]"), "{help}");
}

#[test]
fn every_place_that_sizes_a_cache_wants_whole_pages() {
    let dir = tempfile::tempdir().unwrap();
    let rule = "a multiple of 256, such as 1024: a cache has whole pages";
    let run = |args: &[&str], variables| run_in(dir.path(), args, variables);
    for (args, variables) in [
        (&["run", "Hi", "--cache-tokens", "1000"][..], &[][..]),
        (&["chat", "demo", "--cache-tokens", "1000"], &[]),
        (&["inspect", "demo", "--cache-tokens", "1000"], &[]),
        (&["serve", "demo", "--cache-tokens", "1000"], &[]),
        (&["serve", "demo", "--model.cache_size", "1000"], &[]),
        (&["config", "check"], &[("PAGELLA_MODEL_CACHE_SIZE", "1000")]),
    ] {
        let said = run(args, variables);
        assert!(said.error(2).contains(rule), "{args:?}: {}", said.err);
    }
    std::fs::write(dir.path().join("config.toml"), "[model]\ncache_size = 1000\n").unwrap();
    assert!(run(&["config", "check"], &[]).error(2).contains(rule));
}
