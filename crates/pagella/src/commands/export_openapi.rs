//! `pagella export-openapi`: the description of the server's interface.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::output;

/// Write the OpenAPI description of the server's interface
#[derive(Args)]
pub struct ExportArgs {
    /// File to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ExportArgs) -> Result<()> {
    let text = pagella_server::openapi_text();
    match &args.output {
        None => output::print(&text)?,
        Some(path) => std::fs::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(())
}
