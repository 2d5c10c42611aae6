//! The suites in Python: environments of their own under `target/tools`, made from pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::console::Console;
use crate::tools::succeeds;
use crate::workspace::Workspace;

/// Where the suites of clients and their pins are, below the root.
pub const CLIENTS_DIR: &str = "crates/pagella-server/tests/clients";
/// The Python package, below the root.
pub const PACKAGE_DIR: &str = "bindings/python";
/// The pins, in pip's format; inside an environment, what it was made from.
const PINS: &str = "requirements.txt";
/// Oldest version that the pinned packages run on.
const OLDEST: (u32, u32) = (3, 10);

/// Suites with pins of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// Official clients, and what the page and the description are tried with.
    Official,
    /// Programs that build on them, some of which ask for older versions.
    Frameworks,
    /// What the tests of our own package need.
    Package,
}

impl Pinned {
    /// Where its pins are, below the root.
    fn folder(self) -> PathBuf {
        match self {
            Pinned::Official => CLIENTS_DIR.into(),
            Pinned::Frameworks => Path::new(CLIENTS_DIR).join("frameworks"),
            Pinned::Package => Path::new(PACKAGE_DIR).join("tests"),
        }
    }

    /// What its environment is called.
    fn environment(self) -> &'static str {
        match self {
            Pinned::Official => "python",
            Pinned::Frameworks => "python-frameworks",
            Pinned::Package => "python-package",
        }
    }
}

/// The interpreter of an environment, which is made when the pins say something else than it.
pub fn interpreter(workspace: &Workspace, pinned: Pinned) -> Result<PathBuf> {
    let pins = workspace.root.join(pinned.folder()).join(PINS);
    let wanted =
        fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let folder = workspace.target_dir().join("tools").join(pinned.environment());
    let python = match cfg!(windows) {
        true => folder.join("Scripts").join("python.exe"),
        false => folder.join("bin").join("python"),
    };
    let stamp = folder.join(PINS);
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(python);
    }
    let base = base_interpreter()?;
    let console = &workspace.console;
    let (from, into) = (pins.display(), folder.display());
    console.say(format_args!("installing the packages of {from} into {into}"));
    let started = Instant::now();
    run(console, Command::new(base).args(["-m", "venv", "--clear"]).arg(&folder))?;
    // Modules are compiled when they are imported, which few of them are.
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "-r"];
    run(console, Command::new(&python).args(install).arg(&pins))?;
    // Last, so that an environment with this file is complete.
    fs::write(&stamp, wanted)?;
    console.say(format_args!("installed in {} s", started.elapsed().as_secs()));
    Ok(python)
}

/// A Python that is new enough.
fn base_interpreter() -> Result<&'static str> {
    let (major, minor) = OLDEST;
    let check = format!("import sys, venv; sys.exit(sys.version_info < ({major}, {minor}))");
    let good = |name: &&str| succeeds(Command::new(name).args(["-c", &check]));
    let found = ["python3", "python"].into_iter().find(good);
    found.with_context(|| format!("no Python {major}.{minor} or newer with its module venv"))
}

fn run(console: &Console, command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = console.status(command).with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}; is pypi.org reachable?");
    }
    Ok(())
}
