//! Stages that look at the server from outside: its page, clients of others, its description, many
//! clients at once. They drive the debug build of the command, which the stage `build` made.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::stage::{self, Outcome, check};
use crate::node;
use crate::python::{self, CLIENTS_DIR, Pinned};
use crate::tools::{self, on_build_machine};
use crate::workspace::Workspace;

/// Where the page's sources are, below the root.
const UI_DIR: &str = "crates/pagella-server/ui";
/// Long enough for hundreds of answers and hang-ups, short enough for every push.
const SOAK_SECONDS: &str = "20";

/// A program or an interpreter, or the outcome of a stage that must go on without.
pub fn need<T>(workspace: &Workspace, what: &str, found: Result<T>) -> Result<T, Outcome> {
    found.map_err(|err| {
        let reason = format!("{what}: {err:#}");
        if on_build_machine() {
            return Outcome::Failed(reason);
        }
        workspace.console.say(format_args!("SKIPPED: {reason}"));
        Outcome::Skipped(reason)
    })
}

/// Runs checks that need something; what is missing ends the stage.
pub fn with<T>(
    found: Result<T, Outcome>,
    run: impl FnOnce(T) -> Result<Outcome>,
) -> Result<Outcome> {
    match found {
        Ok(found) => run(found),
        Err(outcome) => Ok(outcome),
    }
}

/// A program of the workspace, built unless the stage `build` was there before.
pub fn built(workspace: &Workspace, name: &str) -> Result<Result<PathBuf, Outcome>> {
    let outcome = stage::build_programs(workspace)?;
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    Ok(match outcome {
        Outcome::Passed(_) => Ok(workspace.target_dir().join("debug").join(file)),
        other => Err(other),
    })
}

pub fn program(workspace: &Workspace) -> Result<Result<PathBuf, Outcome>> {
    built(workspace, "pagella")
}

/// Python with the suites as its working directory, told where the command is.
fn suite(workspace: &Workspace, python: PathBuf, program: PathBuf) -> Command {
    let mut command = Command::new(python);
    command.current_dir(workspace.root.join(CLIENTS_DIR)).env("PAGELLA_BIN", program);
    // A checkout may be read-only, and caches are no part of it.
    command.env("PYTHONPYCACHEPREFIX", workspace.target_dir().join("tools").join("pycache"));
    command
}

fn run_suite(workspace: &Workspace, pinned: Pinned, args: &[&str]) -> Result<Outcome> {
    with(need(workspace, "Python suites", python::interpreter(workspace, pinned)), |python| {
        with(program(workspace)?, |program| {
            check(workspace, suite(workspace, python, program).args(args))
        })
    })
}

/// The page's own tests, then the page in a browser.
pub fn page(workspace: &Workspace) -> Result<Outcome> {
    let node = tools::installed(workspace, &["node"], "nodejs");
    let units = with(need(workspace, "tests of the page", node), |node| {
        let dir = workspace.root.join(UI_DIR);
        check(workspace, Command::new(node).args(["--test", "tests/"]).current_dir(dir))
    })?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let chromium = tools::installed(workspace, &names, "chromium");
    let flows = with(need(workspace, "page in a browser", chromium), |_| {
        let shots = workspace.target_dir().join("page-shots");
        let arguments = ["page.py", "--shots", &shots.to_string_lossy()];
        run_suite(workspace, Pinned::Official, &arguments)
    })?;
    Ok(worse(units, flows))
}

/// What a stage of two parts comes to.
fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (failed @ Outcome::Failed(_), _) | (_, failed @ Outcome::Failed(_)) => failed,
        (skipped @ Outcome::Skipped(_), _) | (_, skipped @ Outcome::Skipped(_)) => skipped,
        (passed, _) => passed,
    }
}

/// Clients of others, in Python and in JavaScript: official ones, and programs that people build on.
pub fn clients(workspace: &Workspace) -> Result<Outcome> {
    let pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"];
    let official = [&pytest[..], &["--ignore", "frameworks", "."]].concat();
    let official = run_suite(workspace, Pinned::Official, &official)?;
    let frameworks = [&pytest[..], &["frameworks"]].concat();
    let frameworks = run_suite(workspace, Pinned::Frameworks, &frameworks)?;
    let python = worse(official, frameworks);
    let suite = need(workspace, "JavaScript suite", node::suite(workspace));
    let javascript = with(suite, |mut suite| {
        with(program(workspace)?, |program| check(workspace, suite.env("PAGELLA_BIN", program)))
    })?;
    Ok(worse(python, javascript))
}

/// Requests made from the description, answers held to it.
pub fn interface(workspace: &Workspace) -> Result<Outcome> {
    run_suite(workspace, Pinned::Official, &["interface.py"])
}

/// Many clients at once, for a short while; `examples/soak` says what for.
pub fn soak(workspace: &Workspace) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        let reason = "processor time and memory are read from /proc";
        workspace.console.say(format_args!("SKIPPED: {reason}"));
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    with(program(workspace)?, |program| {
        with(built(workspace, "examples/soak")?, |soak| {
            let mut soak = Command::new(soak);
            soak.arg("--server").arg(program).args(["--seconds", SOAK_SECONDS]);
            // Time per token says little of a debug build.
            check(workspace, soak.arg("--no-overhead"))
        })
    })
}
