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
mod printable;
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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error),
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 1 };
            output::note(&format!("error: {}", printable::error(&sentence(&error))));
            ExitCode::from(code)
        }
    }
}

/// An error with its causes, as far as it does not repeat them itself.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Shows what clap has to say: help (0), or what is wrong with the command line (2), which it repeats.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let shown = printable::lines(&text);
    if shown == text {
        // With colours, where there are any.
        let _ = error.print();
    } else {
        let _ = write!(io::stderr(), "{shown}");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Whether the reader of our output went away.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(pipe))
}
