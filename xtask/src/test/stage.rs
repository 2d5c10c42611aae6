//! The stages of `cargo xtask test`: each a name, a sentence and the commands behind it.

use std::process::Command;

use anyhow::{Context, Result};

use super::{instructions, library, package, server};
use crate::cuda::toolchain::{self, Readiness};
use crate::tools::on_build_machine;
use crate::workspace::Workspace;
use crate::{tidy, tools};

/// Long enough to catch a parser that panics on nearly every mutation, short enough for every push.
const FUZZ_SECONDS: &str = "5";

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
    /// Earlier stages that must have ended, well or not: they make what this one uses, or both would
    /// use the same thing.
    pub after: &'static [&'static str],
    pub run: fn(&Workspace) -> Result<Outcome>,
}

const fn stage(
    name: &'static str,
    after: &'static [&'static str],
    about: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
) -> Stage {
    Stage { name, about, after, run }
}

/// Every stage, in the order in which they start: what is cheap first, so that a slip in style shows
/// before minutes of compiling; kernels before everything else that compiles, because their compiler
/// must be there by then. Cargo compiles for one stage at a time, so these wait for each other; the
/// tests, which fill the processors, run beside stages that mostly wait.
pub const STAGES: &[Stage] = &[
    stage("fmt", &[], "code is formatted", fmt),
    stage("tidy", &[], "style rules that a program can check", tidy_rules),
    stage("kernels", &[], "CUDA kernels compile; none spills registers", kernels),
    stage("deny", &[], "licences, duplicates, sources of dependencies", deny),
    stage("clippy", &["kernels"], "no warnings in any target", clippy),
    stage("build", &["clippy"], "every program and test compiles", build),
    stage("tests", &["build"], "unit, property, golden, command-line and doc tests", tests),
    stage("page", &["build"], "the built-in page, alone and in a browser", server::page),
    stage("clients", &["page"], "clients of others against a server", server::clients),
    stage("interface", &["clients"], "answers are as described", server::interface),
    stage("soak", &["interface"], "200 clients at once, some hang up", server::soak),
    stage("python", &["build"], "the Python package, its types and its examples", package::python),
    stage("fuzz", &["build"], "every fuzz target, a few seconds each", fuzz_targets),
    stage(
        "instructions",
        &["tests"],
        "instructions per token of the demo model",
        instructions::guarded,
    ),
    stage("library", &["build"], "it compiles without the command", library::alone),
    stage("docs", &["library"], "documentation builds without warnings", docs),
];

fn fmt(workspace: &Workspace) -> Result<Outcome> {
    check(workspace, workspace.cargo().args(["fmt", "--all", "--check"]))
}

fn tidy_rules(workspace: &Workspace) -> Result<Outcome> {
    let findings = tidy::findings(workspace)?;
    for finding in &findings {
        workspace.console.say(finding);
    }
    Ok(match findings.len() {
        0 => Outcome::Passed(String::new()),
        n => Outcome::Failed(format!("{n} findings")),
    })
}

/// Gets a CUDA compiler, so that everything after this is built with kernels. A machine that cannot
/// have one, or a developer who is offline, goes on without; a build machine must not.
fn kernels(workspace: &Workspace) -> Result<Outcome> {
    let console = &workspace.console;
    let without = |reason: String| {
        console.say(format_args!("SKIPPED: everything is built WITHOUT CUDA kernels: {reason}"));
        Ok(Outcome::Skipped(format!("built WITHOUT CUDA kernels: {reason}")))
    };
    match toolchain::prepare(workspace)? {
        Readiness::Ready(nvcc) => {
            let (major, minor) = nvcc.version;
            console.say(format_args!("{} (CUDA {major}.{minor})", nvcc.path.display()));
        }
        Readiness::NotHere(reason) => return without(reason),
        Readiness::Failed(reason) if on_build_machine() => return Ok(Outcome::Failed(reason)),
        Readiness::Failed(reason) => return without(reason),
    }
    // The whole workspace, so that crates get the features they have in the stages to come.
    let resources = ["test", "--workspace", "--test", "kernel_resources"];
    check(workspace, workspace.cargo().args(resources))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    check(workspace, workspace.cargo().args(all))
}

/// What later stages run: programs have the features that tests have, so every crate is built once.
fn build(workspace: &Workspace) -> Result<Outcome> {
    let tests = check(workspace, workspace.cargo().args(["test", "--workspace", "--no-run"]))?;
    Ok(if matches!(tests, Outcome::Passed(_)) { build_programs(workspace)? } else { tests })
}

/// The command, the examples and the extension module of the Python package.
pub fn build_programs(workspace: &Workspace) -> Result<Outcome> {
    let programs = ["build", "--workspace", "--lib", "--bins", "--examples"];
    check(workspace, workspace.cargo().args(programs))
}

/// Every target and the examples in the documentation, from one build.
fn tests(workspace: &Workspace) -> Result<Outcome> {
    check(workspace, workspace.cargo().args(["test", "--workspace", "--no-fail-fast"]))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = workspace.cargo();
    cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    check(workspace, &mut cargo)
}

/// Advisories are left out on purpose: their database is a git repository outside crates.io, and the
/// test command must give the same answer on a machine that reaches only the registry.
fn deny(workspace: &Workspace) -> Result<Outcome> {
    let console = &workspace.console;
    console.say("SKIPPED: security advisories (their database is not on crates.io);");
    console.say("  with network access run `cargo deny check advisories`");
    let program = tools::cargo_deny(workspace)?;
    let mut command = Command::new(program);
    command.current_dir(&workspace.root).args([
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]);
    Ok(match check(workspace, &mut command)? {
        Outcome::Passed(_) => Outcome::Passed("advisories SKIPPED (database not fetched)".into()),
        other => other,
    })
}

fn fuzz_targets(workspace: &Workspace) -> Result<Outcome> {
    server::with(server::built(workspace, "smoke")?, |smoke| {
        check(workspace, Command::new(smoke).args(["--seconds", FUZZ_SECONDS]))
    })
}

/// Runs a command with its output shown; fails when its status says so.
pub fn check(workspace: &Workspace, command: &mut Command) -> Result<Outcome> {
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit(['/', '\\']).next().unwrap_or(&program);
    let line = format!("{name} {}", words.join(" "));
    workspace.console.say(format_args!("$ {line}"));
    let status = workspace.console.status(command);
    let status = status.with_context(|| format!("cannot start `{line}`"))?;
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
        let passed = check(&workspace, workspace.cargo().arg("--version")).unwrap();
        assert!(matches!(passed, Outcome::Passed(_)));
        let failed = check(&workspace, workspace.cargo().arg("--no-such-option")).unwrap();
        assert!(matches!(failed, Outcome::Failed(_)));
    }

    #[test]
    fn a_command_that_cannot_start_is_an_error() {
        let workspace = Workspace::locate().unwrap();
        assert!(check(&workspace, &mut Command::new("no-such-program-anywhere")).is_err());
    }

    #[test]
    fn stages_come_after_earlier_ones() {
        for (i, stage) in STAGES.iter().enumerate() {
            let is_earlier = |name: &&str| STAGES[..i].iter().any(|earlier| earlier.name == *name);
            assert!(stage.after.iter().all(is_earlier), "{}: {:?}", stage.name, stage.after);
        }
    }
}
