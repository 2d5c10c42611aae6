//! What the CUDA crate needs beyond Rust: a compiler, and a way to machines that have a GPU.

pub mod bundle;
pub mod toolchain;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// The folder of the CUDA crate.
fn crate_dir(workspace: &Workspace) -> PathBuf {
    workspace.root.join("crates").join("pagella-cuda")
}

/// Removes a folder and everything in it; one that is not there is no error.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(err).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
