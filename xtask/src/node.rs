//! The suite in JavaScript: official clients under `target/tools`, at the versions of its lock file.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tools;
use crate::workspace::Workspace;

/// Where the suite and its lock file are, below the root.
const SUITE_DIR: &str = "crates/pagella-server/tests/clients/js";
/// What says which versions; inside the installation, what it was made from.
const LOCK: &str = "package-lock.json";

/// A command that runs the suite, without its arguments about the server.
pub fn suite(workspace: &Workspace) -> Result<Command> {
    let node = tools::installed(workspace, &["node"], "nodejs")?;
    let packages = packages(workspace)?;
    let dir = workspace.root.join(SUITE_DIR);
    let mut files = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.js") {
            files.push(name);
        }
    }
    files.sort();
    let mut command = Command::new(node);
    // The checkout stays as it is, so the packages are somewhere else.
    command.current_dir(dir).env("NODE_PATH", packages).arg("--test").args(files);
    Ok(command)
}

/// The folder of installed packages, which is made when the lock file says something else than it.
fn packages(workspace: &Workspace) -> Result<PathBuf> {
    let from = workspace.root.join(SUITE_DIR);
    let lock = from.join(LOCK);
    let wanted =
        fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let folder = workspace.target_dir().join("tools").join("node");
    let (packages, stamp) = (folder.join("node_modules"), folder.join("installed.json"));
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(packages);
    }
    let npm = tools::installed(workspace, &["npm"], "npm")?;
    let console = &workspace.console;
    let into = folder.display();
    console.say(format_args!("installing the packages of {SUITE_DIR}/{LOCK} into {into}"));
    let started = Instant::now();
    fs::create_dir_all(&folder)?;
    for file in ["package.json", LOCK] {
        fs::copy(from.join(file), folder.join(file))?;
    }
    // Exactly what is locked, and nothing of it runs while it is installed.
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let status = console.status(Command::new(npm).args(install).current_dir(&folder));
    if !status.context("cannot start npm")?.success() {
        bail!("`npm {}` failed; is registry.npmjs.org reachable?", install.join(" "));
    }
    // Last, so that an installation with this file is complete.
    fs::write(&stamp, wanted)?;
    console.say(format_args!("installed in {} s", started.elapsed().as_secs()));
    Ok(packages)
}
