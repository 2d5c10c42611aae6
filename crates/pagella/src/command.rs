//! The `pagella` command: dispatch and exit codes.
//!
//! 0: done, 1: failed, 2: wrong usage, 130: stopped by Ctrl-C. Errors are one line on standard error; results go to
//! standard output. A closed pipe (`| head`) ends the program quietly.
//!
//! It is part of the library, behind the feature `command`, so that other programs can carry it: the
//! Python package does.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use pagella_quant::QuantError;

use crate::commands::Command;
use crate::usage::Usage;
use crate::{output, printable};

/// The exit code of a program that Ctrl-C has ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Runs EXL2 and GPTQ language models on your own machine.
#[derive(Parser)]
#[command(name = "pagella", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs the command with these arguments, of which the first is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(status(arguments))
}

/// As [`main`], with the exit code as a number.
pub fn status(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error),
    };
    match cli.command.run() {
        Ok(()) => 0,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            let code = exit_code(&error);
            output::note(&format!("error: {}", printable::error(&sentence(&error))));
            code
        }
    }
}

/// What the program says to others by its end.
fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<QuantError>() {
        Some(QuantError::Stopped { .. }) => EXIT_INTERRUPTED,
        _ if error.is::<Usage>() => 2,
        _ => 1,
    }
}

/// What `pagella inspect MODEL --json` prints, with further flags of it.
pub fn inspect(model: &str, flags: &[&str]) -> anyhow::Result<serde_json::Value> {
    let words = ["pagella", "inspect", "--json", "--", model];
    let (before, after) = words.split_at(3);
    let cli = Cli::try_parse_from(before.iter().chain(flags).chain(after))?;
    match cli.command {
        Command::Inspect(args) => crate::commands::inspect_json(&args),
        _ => Ok(serde_json::Value::Null),
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
fn misunderstood(error: &clap::Error) -> u8 {
    let text = error.render().to_string();
    let shown = printable::lines(&text);
    if shown == text {
        // With colours, where there are any.
        let _ = error.print();
    } else {
        let _ = write!(io::stderr(), "{shown}");
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Whether the reader of our output went away.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(pipe))
}
