//! Where things are: the repository root, build outputs and the optional interop data.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::console::Console;
use crate::tools::on_build_machine;

/// Names the directory of interop data; see [`Workspace::interop_data`].
pub const SHARED_ENV: &str = "PAGELLA_SHARED";

/// The checkout this program was built from, and where to speak of it.
pub struct Workspace {
    pub root: PathBuf,
    pub console: Console,
}

impl Workspace {
    /// The parent of this crate's directory, which Cargo knows at build time.
    pub fn locate() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().context("the xtask crate has no parent directory")?;
        Ok(Self { root: root.to_path_buf(), console: Console::terminal() })
    }

    /// The same checkout, with another place for output.
    pub fn with_console(&self, console: Console) -> Self {
        Self { root: self.root.clone(), console }
    }

    /// Where Cargo puts build outputs, with the same rule as Cargo: the environment, else `target`.
    pub fn target_dir(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) if !dir.is_empty() => self.root.join(dir),
            _ => self.root.join("target"),
        }
    }

    /// Larger models and golden values that some tests compare with when they are there.
    /// `PAGELLA_SHARED` names the directory; otherwise it is `shared` beside the checkout.
    /// Returns the place looked at, and whether the data is there.
    pub fn interop_data(&self) -> (PathBuf, bool) {
        let dir = match std::env::var_os(SHARED_ENV) {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir),
            _ => self.root.join("..").join("shared"),
        };
        let found = dir.join("golden").is_dir() && dir.join("models").is_dir();
        (dir, found)
    }

    /// `cargo` of the toolchain that built this program, started in the repository root.
    pub fn cargo(&self) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        if on_build_machine() {
            // What is built once gains nothing from state for building it again.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }
}
