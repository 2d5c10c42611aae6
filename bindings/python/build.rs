//! Lays the bundled models where maturin takes files for a wheel from (`pyproject.toml`), so that the checkout
//! has them once, and without links, which not everything that carries a checkout keeps.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The bundled models, beside the workspace's crates.
const MODELS: &str = "../../models";

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed={MODELS}");
    let into = out.join("models");
    match fs::remove_dir_all(&into) {
        Err(problem) if problem.kind() != io::ErrorKind::NotFound => Err(problem),
        _ => copy(&here.join(MODELS), &into),
    }
}

/// A folder with everything in it.
fn copy(from: &Path, into: &Path) -> io::Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = into.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), &target)?),
        }
    }
    Ok(())
}
