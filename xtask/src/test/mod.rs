//! `cargo xtask test`: every stage a change must pass, two at a time, with a summary.
//!
//! What a stage prints goes to a file and is shown whole when it ends; a stage that was selected alone
//! shows it at once. A failing stage does not stop the others: one run reports everything that is
//! wrong. What was left out (a stage, interop data, a part of a check) is said in the summary, never
//! silently.

mod instructions;
mod library;
mod package;
mod schedule;
mod select;
mod server;
mod stage;

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Verdict;
use crate::console::Console;
use crate::tools;
use crate::workspace::{SHARED_ENV, Workspace};
use select::Selection;
use stage::{Outcome, STAGES, Stage};

/// Stages that run side by side. One may fill the processors while the other waits for a browser, a
/// network or a program with one thread; a third would only slow these down.
const AT_ONCE: usize = 2;

/// What one stage said, and how long it took.
struct Report {
    stage: &'static Stage,
    outcome: Outcome,
    took: Duration,
}

/// Runs the selected stages. `Bad` when any of them failed.
pub fn command(workspace: &Workspace, args: &[String]) -> Result<Verdict> {
    let names: Vec<&str> = STAGES.iter().map(|s| s.name).collect();
    let selection = Selection::parse(args, &names)?;
    if selection.list_only {
        print_stages();
        return Ok(Verdict::Good);
    }
    announce_interop_data(workspace);
    tools::check_components(workspace)?;
    let wanted: Vec<&Stage> = STAGES.iter().filter(|s| selection.wants(s.name)).collect();
    let alone = wanted.len() == 1;
    let started = Instant::now();
    let reports = schedule::run(wanted, AT_ONCE, |stage| match alone {
        true => run(workspace, stage),
        false => run_aside(workspace, stage),
    });
    print_summary(workspace, &reports, started.elapsed());
    let is_failed = |report: &&Report| matches!(report.outcome, Outcome::Failed(_));
    let failed: Vec<&str> = reports.iter().filter(is_failed).map(|r| r.stage.name).collect();
    if failed.is_empty() {
        println!("PASSED");
        return Ok(Verdict::Good);
    }
    println!("FAILED: {}", failed.join(", "));
    Ok(Verdict::Bad)
}

/// One line per stage: its name and what it checks.
pub fn print_stages() {
    for stage in STAGES {
        println!("  {:<12} {}", stage.name, stage.about);
    }
}

/// Runs a stage with its output in a file, which is shown at the end.
fn run_aside(workspace: &Workspace, stage: &'static Stage) -> Report {
    let log = workspace.target_dir().join("test-logs").join(format!("{}.log", stage.name));
    println!("started {}: {}", stage.name, log.display());
    let console = match Console::file(&log) {
        Ok(console) => console,
        Err(err) => {
            let outcome = Outcome::Failed(format!("{err:#}"));
            return Report { stage, outcome, took: Duration::ZERO };
        }
    };
    let workspace = workspace.with_console(console);
    let report = run(&workspace, stage);
    // Held, so that stages that end together do not mix.
    let _terminal = io::stdout().lock();
    if let Err(err) = workspace.console.show() {
        println!("{err:#}");
    }
    report
}

fn run(workspace: &Workspace, stage: &'static Stage) -> Report {
    let console = &workspace.console;
    console.say(format_args!("\n==== {}: {}", stage.name, stage.about));
    let started = Instant::now();
    // An error of the automation (a program that cannot start) fails its stage, not the whole run.
    let outcome = (stage.run)(workspace).unwrap_or_else(|err| Outcome::Failed(format!("{err:#}")));
    if let Outcome::Failed(reason) = &outcome {
        console.say(format_args!("FAILED: {}: {reason}", stage.name));
    }
    Report { stage, outcome, took: started.elapsed() }
}

fn announce_interop_data(workspace: &Workspace) {
    let (dir, found) = workspace.interop_data();
    let dir = dir.display();
    if found {
        println!("INTEROP DATA FOUND: {dir}; comparisons with other programs will run");
    } else {
        println!("INTEROP DATA SKIPPED: nothing at {dir} (set {SHARED_ENV} to its directory);");
        println!("  tests that compare with other programs pass without comparing anything");
    }
}

fn print_summary(workspace: &Workspace, reports: &[Report], took: Duration) {
    println!("\n==== summary");
    for stage in STAGES {
        let report = reports.iter().find(|report| report.stage.name == stage.name);
        let (word, note) = match report.map(|report| &report.outcome) {
            Some(Outcome::Passed(note)) => ("ok", note.as_str()),
            Some(Outcome::Failed(reason)) => ("FAILED", reason.as_str()),
            Some(Outcome::Skipped(reason)) => ("SKIPPED", reason.as_str()),
            None => ("SKIPPED", "not selected"),
        };
        let seconds = report.map_or(0.0, |report| report.took.as_secs_f64());
        println!("  {word:<8} {:<12} {seconds:>7.1} s  {note}", stage.name);
    }
    println!("  {:<21} {:>7.1} s  from start to end", "all", took.as_secs_f64());
    announce_interop_data(workspace);
}
