//! `cargo xtask cuda-toolchain`: the CUDA compiler from PyPI, pinned, into `target/cuda-toolchain`.
//!
//! The build script of the CUDA crate finds it there. A folder that exists is complete: the packages
//! are installed beside it and the folder is renamed at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};

use super::{crate_dir, remove};
use crate::Verdict;
use crate::console::Console;
use crate::nvcc::{self, Choice};
use crate::workspace::Workspace;

/// Packages with their hashes, in pip's format; inside an installation, what it was made from.
const PINS: &str = "toolchain.txt";

/// Whether the kernels can be compiled here.
pub enum Readiness {
    /// With this compiler.
    Ready(nvcc::Nvcc),
    /// Not, and that is a decision or a property of the machine: why.
    NotHere(String),
    /// It should be possible and is not: why.
    Failed(String),
}

/// Installs unless it is there, and prints where the compiler is.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    if let Some(option) = args.first() {
        bail!("`cargo xtask cuda-toolchain` takes no arguments, not `{option}`");
    }
    println!("{}", install(workspace)?.display());
    Ok(Verdict::Good)
}

/// Finds a compiler as the build script will, and fetches one when there is none.
pub fn prepare(workspace: &Workspace) -> Result<Readiness> {
    let choose = || nvcc::choose(&crate_dir(workspace)).map_err(anyhow::Error::msg);
    match choose()? {
        Choice::Found { nvcc, .. } => return Ok(Readiness::Ready(nvcc)),
        Choice::Refused => {
            let reason = format!("{}={} asks for no kernels", nvcc::NVCC_ENV, nvcc::NONE);
            return Ok(Readiness::NotHere(reason));
        }
        Choice::Missing { .. } if !is_supported() => {
            let reason =
                "no nvcc, and the packages of one exist for Linux on x86-64 and aarch64 only";
            return Ok(Readiness::NotHere(reason.to_owned()));
        }
        Choice::Missing { .. } => {}
    }
    if let Err(err) = install(workspace) {
        return Ok(Readiness::Failed(format!("{err:#}")));
    }
    Ok(match choose()? {
        Choice::Found { nvcc, .. } => Readiness::Ready(nvcc),
        Choice::Missing { passed_over } => Readiness::Failed(passed_over.join("; ")),
        Choice::Refused => Readiness::Failed("the environment changed meanwhile".to_owned()),
    })
}

fn is_supported() -> bool {
    cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))
}

/// The compiler of the project's own folder, installed when the pins say something else than it.
fn install(workspace: &Workspace) -> Result<PathBuf> {
    let pins = crate_dir(workspace).join(PINS);
    let folder = workspace.root.join(nvcc::TOOLCHAIN_DIR);
    let program = folder.join(nvcc::IN_TOOLCHAIN);
    let wanted =
        fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    if is_current(&folder, &wanted) {
        return Ok(program);
    }
    if !is_supported() {
        bail!("the packages exist for Linux on x86-64 and aarch64 only; install CUDA from NVIDIA");
    }
    let started = Instant::now();
    let unfinished = folder.with_extension("unfinished");
    remove(&unfinished)?;
    let console = &workspace.console;
    let into = folder.display();
    console.note(format_args!("installing the CUDA compiler into {into} (100 MB to fetch)"));
    pip_install(console, &pins, &unfinished)?;
    if !unfinished.join(nvcc::IN_TOOLCHAIN).is_file() {
        bail!("the packages of {} hold no {}", pins.display(), nvcc::IN_TOOLCHAIN);
    }
    fs::write(unfinished.join(PINS), &wanted).context("cannot finish the installation")?;
    remove(&folder)?;
    fs::rename(&unfinished, &folder).context("cannot finish the installation")?;
    touch(&pins)?;
    console.note(format_args!("installed the CUDA compiler in {} s", started.elapsed().as_secs()));
    Ok(program)
}

/// Whether a folder was installed from exactly these pins.
fn is_current(folder: &Path, wanted: &str) -> bool {
    let found = fs::read_to_string(folder.join(PINS));
    folder.join(nvcc::IN_TOOLCHAIN).is_file() && found.is_ok_and(|found| found == wanted)
}

/// Fetches and unpacks the packages; pip compares the hashes.
fn pip_install(console: &Console, pins: &Path, folder: &Path) -> Result<()> {
    let python = |args: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-m", "pip"]).args(args);
        command
    };
    let remedy = "install Python 3 with pip, or a CUDA toolkit from NVIDIA";
    let version = python(&["--version"]).output();
    let version = version.with_context(|| format!("`python3` cannot be started: {remedy}"))?;
    if !version.status.success() {
        bail!("`python3 -m pip` does not work: {remedy}");
    }
    let mut command = python(&[
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
        "--require-hashes",
        "--no-deps",
        "--only-binary=:all:",
        "--no-compile",
        "--target",
    ]);
    let status = console.status(command.arg(folder).arg("--requirement").arg(pins));
    if !status.context("cannot start pip")?.success() {
        bail!("pip could not install the packages of {}; is PyPI reachable?", pins.display());
    }
    Ok(())
}

/// The build script looks for the compiler again when this file is newer than its last run.
fn touch(path: &Path) -> Result<()> {
    let file = File::options().append(true).open(path);
    file.and_then(|file| file.set_modified(SystemTime::now()))
        .with_context(|| format!("cannot touch {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_with_a_hash_per_processor() {
        let pins = crate_dir(&Workspace::locate().unwrap()).join(PINS);
        let text = fs::read_to_string(pins).unwrap().replace("\\\n", " ");
        let packages: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(packages.len(), 5);
        for package in packages {
            assert!(package.starts_with("nvidia-") && package.contains("==13.0."), "{package}");
            assert_eq!(package.matches("--hash=sha256:").count(), 2, "{package}");
        }
    }

    #[test]
    fn an_installation_is_current_when_the_pins_are_the_same() {
        let folder = std::env::temp_dir().join(format!("pagella-xtask-{}", std::process::id()));
        let program = folder.join(nvcc::IN_TOOLCHAIN);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(folder.join(PINS), "one").unwrap();
        assert!(!is_current(&folder, "one"), "there is no compiler yet");
        fs::write(&program, "").unwrap();
        assert!(is_current(&folder, "one"));
        assert!(!is_current(&folder, "two"));
        remove(&folder).unwrap();
        remove(&folder).unwrap();
    }
}
