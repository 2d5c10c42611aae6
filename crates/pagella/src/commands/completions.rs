//! `pagella completions`: what a shell needs to complete commands and flags.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::command::Cli;
use crate::output;

/// Print the completions of a shell
///
/// bash: pagella completions bash > ~/.local/share/bash-completion/completions/pagella
/// zsh: pagella completions zsh > "${fpath[1]}/_pagella"
/// fish: pagella completions fish > ~/.config/fish/completions/pagella.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pagella", &mut script);
    Ok(output::print(&String::from_utf8(script)?)?)
}
