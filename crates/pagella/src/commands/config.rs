//! `pagella config`: what the server is told, looked at before it is started.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use pagella_server::config::{import, sample};

use crate::flags::ConfigFlags;
use crate::output;
use crate::usage::Usage;

/// Check, show or make the configuration of `pagella serve`
///
/// Values come from defaults, then config.toml, then the environment (PAGELLA_SECTION_KEY), then
/// flags (--section.key VALUE); what comes later wins.
#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Say what is wrong with it, if anything is
    Check(Box<Sources>),
    /// Print what holds, and where each value came from
    Show(Box<Sources>),
    /// Print a file with every key at its default
    Sample,
    /// Turn a config.yml of TabbyAPI into a file for this server
    Import {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Where values are looked for.
#[derive(Args)]
struct Sources {
    #[command(flatten)]
    config: ConfigFlags,
}

/// Runs the command.
pub fn run(args: &ConfigArgs) -> Result<()> {
    match &args.what {
        What::Check(sources) => {
            let (_, config) = sources.config.load()?;
            let file = config.file.as_ref().map(|path| path.display().to_string());
            let text = format!("{}: fine\n", file.as_deref().unwrap_or("defaults"));
            Ok(output::print(&text)?)
        }
        What::Show(sources) => Ok(output::print(&sources.config.load()?.1.show())?),
        What::Sample => Ok(output::print(&sample())?),
        What::Import { file } => {
            let shown = file.display();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
            let imported =
                import(&text).map_err(|problem| Usage::error(format!("{shown}: {problem}")))?;
            for note in &imported.notes {
                output::note(&format!("note: {note}"));
            }
            Ok(output::print(&imported.to_toml())?)
        }
    }
}
