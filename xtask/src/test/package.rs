//! The Python package: its tests run with the extension module that the stage `build` made.
//!
//! The package is put together from links below the target directory, so that nothing is written into
//! the checkout and nothing is compiled twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::server::{need, program, with};
use super::stage::{Outcome, check};
use crate::python::{self, PACKAGE_DIR, Pinned};
use crate::workspace::Workspace;

/// What the linker calls the extension module.
const BUILT: &str = "lib_pagella.so";
/// The bundled models, below the root, and below the package where it is installed.
const MODELS: &str = "models";
/// What Python looks for.
const IMPORTED: &str = "_pagella.abi3.so";

/// The package's own tests.
pub fn python(workspace: &Workspace) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        let reason = "the package is tested on Linux";
        workspace.console.say(format_args!("SKIPPED: {reason}"));
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let interpreter = python::interpreter(workspace, Pinned::Package);
    with(need(workspace, "Python package", interpreter), |python| {
        with(program(workspace)?, |program| {
            let tools = workspace.target_dir().join("tools");
            let mut pytest = Command::new(python);
            pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]);
            pytest.current_dir(workspace.root.join(PACKAGE_DIR));
            pytest.env("PYTHONPATH", put_together(workspace)?).env("PAGELLA_BIN", program);
            pytest.env("PYTHONPYCACHEPREFIX", tools.join("pycache"));
            pytest.env("PAGELLA_MYPY_CACHE", tools.join("mypy-cache"));
            check(workspace, &mut pytest)
        })
    })
}

/// The folder that holds the package `pagella`, as links to its files and to the module.
fn put_together(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target_dir();
    let folder = target.join("python");
    let package = folder.join("pagella");
    if package.exists() {
        fs::remove_dir_all(&package)
            .with_context(|| format!("cannot empty {}", package.display()))?;
    }
    fs::create_dir_all(&package)?;
    let sources = workspace.root.join(PACKAGE_DIR).join("python").join("pagella");
    let entries = fs::read_dir(&sources);
    for entry in entries.with_context(|| format!("cannot read {}", sources.display()))? {
        let entry = entry?;
        // A module that a developer has built into the checkout is another one.
        if entry.file_name() != IMPORTED {
            link(&entry.path(), &package.join(entry.file_name()))?;
        }
    }
    // A wheel has them there.
    link(&workspace.root.join(MODELS), &package.join(MODELS))?;
    link(&target.join("debug").join(BUILT), &package.join(IMPORTED))?;
    Ok(folder)
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> Result<()> {
    std::os::unix::fs::symlink(from, to).with_context(|| format!("cannot link {}", to.display()))
}

#[cfg(not(unix))]
fn link(from: &Path, _to: &Path) -> Result<()> {
    anyhow::bail!("{} cannot be linked on this system", from.display())
}
