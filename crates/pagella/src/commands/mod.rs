//! The verbs of the command line, one file each.

mod bench;
mod chat;
mod completions;
mod config;
mod diff;
mod doctor;
mod export_openapi;
mod inspect;
mod list;
mod man;
mod ppl;
mod pull;
mod quantize;
mod run;
mod serve;

use anyhow::Result;
use clap::Subcommand;

pub use inspect::json as inspect_json;

/// Tokens of an answer of `run` and of `chat` unless stated.
#[cfg(test)]
pub const MAX_NEW_TOKENS: (usize, usize) = (run::MAX_NEW_TOKENS, chat::MAX_NEW_TOKENS);

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    Run(Box<run::RunArgs>),
    Chat(Box<chat::ChatArgs>),
    Serve(Box<serve::ServeArgs>),
    List(list::ListArgs),
    Inspect(inspect::InspectArgs),
    Ppl(ppl::PplArgs),
    Bench(bench::BenchArgs),
    Quantize(quantize::QuantizeArgs),
    Diff(diff::DiffArgs),
    Doctor(doctor::DoctorArgs),
    Pull(pull::PullArgs),
    Config(config::ConfigArgs),
    ExportOpenapi(export_openapi::ExportArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Run(args) => run::run(&args),
            Command::Chat(args) => chat::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::List(args) => list::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Ppl(args) => ppl::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Quantize(args) => quantize::run(&args),
            Command::Diff(args) => diff::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Pull(args) => pull::run(&args),
            Command::Config(args) => config::run(&args),
            Command::ExportOpenapi(args) => export_openapi::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}
