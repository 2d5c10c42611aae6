//! Compiles the kernels (`kernels/*.cu`) and writes the tables through which the crate finds them.
//!
//! Without a CUDA compiler the crate builds all the same, without kernels and without
//! `cfg(pagella_kernels)`, and a warning says how to get one. `PAGELLA_NVCC` names a compiler, or
//! `none`; `PAGELLA_CUDA_ARCHS` (such as `90a`) restricts the chips while kernels are being written.

#[path = "build/compile.rs"]
mod compile;
#[path = "build/nvcc.rs"]
mod nvcc;
#[path = "build/table.rs"]
mod table;
#[path = "build/target.rs"]
mod target;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The versions of the project's own compiler. `cargo xtask cuda-toolchain` touches the file after
/// an installation, which makes Cargo run this again.
const PINS: &str = "toolchain.txt";

/// Asks, with any value, for the source lines that profilers and compute-sanitizer show. The code is
/// the same with them, but three times as large and slower to compress than to compile for a chip.
const LINE_INFO_ENV: &str = "PAGELLA_CUDA_LINEINFO";

/// What to do when there is no compiler.
const REMEDY: &str = "no usable nvcc; `cargo xtask cuda-toolchain` fetches one, \
                          or set PAGELLA_NVCC to its path (`none` silences this)";

fn main() -> ExitCode {
    println!("cargo::rustc-check-cfg=cfg(pagella_kernels)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed={PINS}");
    for name in nvcc::ENVIRONMENT.iter().chain(&[target::ARCHS_ENV, LINE_INFO_ENV]) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            message.lines().for_each(|line| println!("cargo::error={line}"));
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out_dir = PathBuf::from(required("OUT_DIR")?);
    let crate_dir = PathBuf::from(required("CARGO_MANIFEST_DIR")?);
    let for_apple = env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor == "apple");
    let choice = if for_apple { nvcc::Choice::Refused } else { nvcc::choose(&crate_dir)? };
    let nvcc = match choice {
        nvcc::Choice::Found { nvcc, passed_over } => {
            passed_over.iter().for_each(|line| println!("cargo::warning={line}"));
            nvcc
        }
        nvcc::Choice::Refused => return table::write_empty(&out_dir),
        nvcc::Choice::Missing { passed_over } => {
            passed_over.iter().for_each(|line| println!("cargo::warning={line}"));
            println!("cargo::warning=building without CUDA kernels: {}", REMEDY);
            return table::write_empty(&out_dir);
        }
    };
    println!("cargo::rerun-if-changed={}", nvcc.path.display());
    let jobs = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let archs = env::var(target::ARCHS_ENV).ok();
    let kernels = compile::all(&compile::Order {
        nvcc: &nvcc,
        sources: Path::new("kernels"),
        cache: &cache_dir(&out_dir),
        archs: archs.as_deref(),
        line_info: env::var_os(LINE_INFO_ENV).is_some_and(|value| !value.is_empty()),
        jobs,
    })?;
    for line in kernels.iter().flat_map(|kernel| kernel.warnings()) {
        println!("cargo::warning={line}");
    }
    table::write(&out_dir, nvcc.version, &kernels)?;
    if !kernels.is_empty() {
        println!("cargo::rustc-cfg=pagella_kernels");
    }
    Ok(())
}

fn required(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("Cargo did not set {name}"))
}

/// A folder that all profiles share, so that debug and release builds compile the kernels once:
/// `<target>/cuda-kernels`, four levels above `<target>/<profile>/build/<package>/out`.
fn cache_dir(out_dir: &Path) -> PathBuf {
    out_dir.ancestors().nth(4).unwrap_or(out_dir).join("cuda-kernels")
}
