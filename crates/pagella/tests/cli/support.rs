//! Running the binary and looking at what it said.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command left behind.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Standard output as one JSON value, after checking that the command succeeded.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    /// The one line of a failed command, after checking that it is one.
    pub fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        let line = self.err.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("no error line: {}", self.err))
    }
}

/// The command, free of the caller's settings.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagella"));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        if ["PAGELLA_", "HF_"].iter().any(|p| text.starts_with(p)) || text.ends_with("_PROXY") {
            command.env_remove(&name);
        }
    }
    // The same on every machine: numbers of threads and kinds of arithmetic belong to the CPU.
    command.env("PAGELLA_DEVICE", "cpu");
    command
}

/// Runs the command with nothing on standard input.
pub fn pagella(args: &[&str]) -> Said {
    feed(command(args), "")
}

/// Runs the command with this standard input.
pub fn pagella_with_input(args: &[&str], input: &str) -> Said {
    feed(command(args), input)
}

/// Runs a prepared command.
pub fn feed(mut command: Command, input: &str) -> Said {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The demo model's directory.
pub fn demo_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo")
}

/// A copy of the demo model that a test may damage.
pub fn demo_copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "output.safetensors",
    ] {
        std::fs::copy(demo_dir().join(name), dir.path().join(name)).unwrap();
    }
    dir
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
