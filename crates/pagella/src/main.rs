//! The `pagella` command: dispatch and exit codes.
//!
//! 0: done, 1: failed, 2: wrong usage. Errors are one line on standard error; results go to
//! standard output. A closed pipe (`| head`) ends the program quietly.

#![forbid(unsafe_code)]

mod bandwidth;
mod commands;
mod flags;
mod machine;
mod output;
mod usage;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use usage::Usage;

/// Runs EXL2 and GPTQ language models on your own machine.
#[derive(Parser)]
#[command(name = "pagella", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Clap ends the program itself on wrong usage (2) and on --help (0).
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 1 };
            // With standard error gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(code)
        }
    }
}

/// Whether the reader of our output went away.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(pipe))
}
