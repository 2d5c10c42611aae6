//! What the CUDA crate needs beyond Rust: a compiler, and a way to machines that have a GPU.

pub mod toolchain;

use std::path::PathBuf;

use crate::workspace::Workspace;

/// The folder of the CUDA crate.
fn crate_dir(workspace: &Workspace) -> PathBuf {
    workspace.root.join("crates").join("pagella-cuda")
}
