//! The stages of `cargo xtask test`: each a name, a sentence and the commands behind it.

use std::process::Command;

use anyhow::{Context, Result};

use super::{library, server};
use crate::cuda::toolchain::{self, Readiness};
use crate::tools::on_build_machine;
use crate::workspace::Workspace;
use crate::{fuzz, tidy, tools};

/// Long enough to catch a parser that panics on nearly every mutation, short enough for every push.
const FUZZ_SECONDS: u64 = 5;

/// How a stage ended; the text goes into the summary.
pub enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// One thing that is checked.
pub struct Stage {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Workspace) -> Result<Outcome>,
}

/// Every stage, cheapest first, so that a slip in style shows before minutes of compiling; kernels
/// before everything else that compiles, because their compiler must be there by then.
pub const STAGES: &[Stage] = &[
    Stage { name: "fmt", about: "code is formatted", run: fmt },
    Stage { name: "tidy", about: "style rules that a program can check", run: tidy_rules },
    Stage { name: "kernels", about: "CUDA kernels compile; none spills registers", run: kernels },
    Stage { name: "library", about: "it compiles without the command", run: library::alone },
    Stage { name: "clippy", about: "no warnings in any target", run: clippy },
    Stage {
        name: "tests",
        about: "unit, property, golden, command-line and doc tests",
        run: tests,
    },
    Stage { name: "page", about: "the built-in page, alone and in a browser", run: server::page },
    Stage { name: "clients", about: "clients of others against a server", run: server::clients },
    Stage { name: "interface", about: "answers are as described", run: server::interface },
    Stage { name: "soak", about: "200 clients at once, some hang up", run: server::soak },
    Stage { name: "docs", about: "documentation builds without warnings", run: docs },
    Stage { name: "deny", about: "licences, duplicates, sources of dependencies", run: deny },
    Stage { name: "fuzz", about: "every fuzz target, a few seconds each", run: fuzz_targets },
];

fn fmt(workspace: &Workspace) -> Result<Outcome> {
    check(workspace.cargo().args(["fmt", "--all", "--check"]))
}

fn tidy_rules(workspace: &Workspace) -> Result<Outcome> {
    let findings = tidy::findings(workspace)?;
    for finding in &findings {
        println!("{finding}");
    }
    Ok(match findings.len() {
        0 => Outcome::Passed(String::new()),
        n => Outcome::Failed(format!("{n} findings")),
    })
}

/// Gets a CUDA compiler, so that everything after this is built with kernels. A machine that cannot
/// have one, or a developer who is offline, goes on without; a build machine must not.
fn kernels(workspace: &Workspace) -> Result<Outcome> {
    let without = |reason: String| {
        println!("SKIPPED: everything is built WITHOUT CUDA kernels: {reason}");
        Ok(Outcome::Skipped(format!("built WITHOUT CUDA kernels: {reason}")))
    };
    match toolchain::prepare(workspace)? {
        Readiness::Ready(nvcc) => {
            let (major, minor) = nvcc.version;
            println!("{} (CUDA {major}.{minor})", nvcc.path.display());
        }
        Readiness::NotHere(reason) => return without(reason),
        Readiness::Failed(reason) if on_build_machine() => return Ok(Outcome::Failed(reason)),
        Readiness::Failed(reason) => return without(reason),
    }
    // The whole workspace, so that crates get the features they have in the stages to come.
    check(workspace.cargo().args(["test", "--workspace", "--test", "kernel_resources"]))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    check(workspace.cargo().args(all))
}

/// Every target and the examples in the documentation, from one build.
fn tests(workspace: &Workspace) -> Result<Outcome> {
    check(workspace.cargo().args(["test", "--workspace", "--no-fail-fast"]))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = workspace.cargo();
    cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    check(&mut cargo)
}

/// Advisories are left out on purpose: their database is a git repository outside crates.io, and the
/// test command must give the same answer on a machine that reaches only the registry.
fn deny(workspace: &Workspace) -> Result<Outcome> {
    println!("SKIPPED: security advisories (their database is not on crates.io);");
    println!("  with network access run `cargo deny check advisories`");
    let program = tools::cargo_deny(workspace)?;
    let mut command = Command::new(program);
    command.current_dir(&workspace.root).args([
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]);
    Ok(match check(&mut command)? {
        Outcome::Passed(_) => Outcome::Passed("advisories SKIPPED (database not fetched)".into()),
        other => other,
    })
}

fn fuzz_targets(workspace: &Workspace) -> Result<Outcome> {
    check(&mut fuzz::smoke(workspace, FUZZ_SECONDS, &[]))
}

/// Runs a command with its output shown; fails when its status says so.
pub fn check(command: &mut Command) -> Result<Outcome> {
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit(['/', '\\']).next().unwrap_or(&program);
    let line = format!("{name} {}", words.join(" "));
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    Ok(if status.success() {
        Outcome::Passed(String::new())
    } else {
        Outcome::Failed(format!("`{line}` ended with {status}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_fails_its_stage() {
        let workspace = Workspace::locate().unwrap();
        let passed = check(workspace.cargo().arg("--version")).unwrap();
        assert!(matches!(passed, Outcome::Passed(_)));
        let failed = check(workspace.cargo().arg("--no-such-option")).unwrap();
        assert!(matches!(failed, Outcome::Failed(_)));
    }

    #[test]
    fn a_command_that_cannot_start_is_an_error() {
        assert!(check(&mut Command::new("no-such-program-anywhere")).is_err());
    }
}
