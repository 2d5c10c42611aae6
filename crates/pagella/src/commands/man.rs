//! `pagella man`: a manual page for every command.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

use crate::command::Cli;

/// Write the manual pages: pagella.1, pagella-run.1 and so on
#[derive(Args)]
pub struct ManArgs {
    /// Folder to write to; it is made if there is none
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the command.
pub fn run(args: &ManArgs) -> Result<()> {
    let written = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir));
    written.with_context(|| format!("cannot write to {}", args.dir.display()))
}
