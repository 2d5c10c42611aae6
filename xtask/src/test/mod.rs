//! `cargo xtask test`: every stage a change must pass, one after the other, with a summary.
//!
//! A failing stage does not stop the others: one run reports everything that is wrong. What was left
//! out (a stage, interop data, a part of a check) is said in the summary, never silently.

mod library;
mod select;
mod server;
mod stage;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Verdict;
use crate::tools;
use crate::workspace::{SHARED_ENV, Workspace};
use select::Selection;
use stage::{Outcome, STAGES, Stage};

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
    let reports: Vec<Report> = STAGES.iter().map(|s| run(workspace, s, &selection)).collect();
    print_summary(workspace, &reports);
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
        println!("  {:<10} {}", stage.name, stage.about);
    }
}

fn run(workspace: &Workspace, stage: &'static Stage, selection: &Selection) -> Report {
    if !selection.wants(stage.name) {
        let outcome = Outcome::Skipped("not selected".to_owned());
        return Report { stage, outcome, took: Duration::ZERO };
    }
    println!("\n==== {}: {}", stage.name, stage.about);
    let started = Instant::now();
    // An error of the automation (a program that cannot start) fails its stage, not the whole run.
    let outcome = (stage.run)(workspace).unwrap_or_else(|err| Outcome::Failed(format!("{err:#}")));
    if let Outcome::Failed(reason) = &outcome {
        println!("FAILED: {}: {reason}", stage.name);
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

fn print_summary(workspace: &Workspace, reports: &[Report]) {
    println!("\n==== summary");
    for report in reports {
        let (word, note) = match &report.outcome {
            Outcome::Passed(note) => ("ok", note.as_str()),
            Outcome::Failed(reason) => ("FAILED", reason.as_str()),
            Outcome::Skipped(reason) => ("SKIPPED", reason.as_str()),
        };
        let seconds = report.took.as_secs_f64();
        println!("  {word:<8} {:<10} {seconds:>7.1} s  {note}", report.stage.name);
    }
    announce_interop_data(workspace);
}
