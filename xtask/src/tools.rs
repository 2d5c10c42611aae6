//! Programs the stages need beyond the compiler. Each is looked for first, then installed or explained.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Pinned, so that a new release cannot turn a green change red.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Parts of the toolchain that `rustup` may have left out, and the subcommand that proves them there.
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// Fails with the command to type when a toolchain component is missing.
pub fn check_components(workspace: &Workspace) -> Result<()> {
    for (component, subcommand) in COMPONENTS {
        let mut probe = workspace.cargo();
        probe.args([subcommand, "--version"]);
        if !succeeds(&mut probe) {
            bail!("`cargo {subcommand}` is missing: run `rustup component add {component}`");
        }
    }
    Ok(())
}

/// The `cargo-deny` program: the one on PATH, else our own copy under `target/tools`, built once.
pub fn cargo_deny(workspace: &Workspace) -> Result<PathBuf> {
    let on_path = PathBuf::from("cargo-deny");
    if runs(&on_path) {
        return Ok(on_path);
    }
    let tools_dir = workspace.target_dir().join("tools");
    let ours = tools_dir.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if runs(&ours) {
        return Ok(ours);
    }
    install(workspace, "cargo-deny", CARGO_DENY_VERSION, &tools_dir)?;
    Ok(ours)
}

/// A program of the system under one of its names. A build machine installs what is missing from
/// Debian's packages, if it can; anyone else is told what to type.
pub fn installed(workspace: &Workspace, names: &[&str], package: &str) -> Result<PathBuf> {
    let find = || names.iter().map(PathBuf::from).find(|name| runs(name));
    if let Some(found) = find() {
        return Ok(found);
    }
    let install = ["install", "--yes", "--no-install-recommends", package];
    if on_build_machine() && succeeds(Command::new("apt-get").arg("--version")) {
        let console = &workspace.console;
        console.say(format_args!("$ apt-get {}", install.join(" ")));
        // The list of packages may be older than the packages.
        let _ = console.status(Command::new("apt-get").args(["update", "--quiet"]));
        let _ = console.status(Command::new("apt-get").args(install));
    }
    let missing = || format!("`{}` is missing: run `apt-get {}`", names[0], install.join(" "));
    find().with_context(missing)
}

/// Whether continuous integration runs this: it sets `CI`, by general agreement.
pub fn on_build_machine() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Builds a program from crates.io with the dependency versions its authors tested.
/// A debug build: it compiles several times faster, and the check itself takes a second either way.
fn install(workspace: &Workspace, name: &str, version: &str, tools_dir: &Path) -> Result<()> {
    let console = &workspace.console;
    console.say(format_args!("installing {name} {version} into {}", tools_dir.display()));
    let started = Instant::now();
    let mut install = workspace.cargo();
    install
        .args(["install", name, "--version", version, "--locked", "--debug", "--root"])
        .arg(tools_dir)
        // Its own build folder, kept: an interrupted installation resumes.
        .env("CARGO_TARGET_DIR", tools_dir.join("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    let status = console.status(&mut install);
    let status = status.with_context(|| format!("cannot start `cargo install {name}`"))?;
    if !status.success() {
        bail!(
            "`cargo install {name} --version {version} --locked` failed; is crates.io reachable?"
        );
    }
    console.say(format_args!("installed {name} in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn runs(program: &Path) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

/// Whether a command runs and says so; its output is not shown.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
