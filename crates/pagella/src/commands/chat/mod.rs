//! `pagella chat`: a conversation in the terminal.
//!
//! `input` reads lines, `command` understands those that start with a slash, `setting` knows what
//! can be changed, `transcript` saves and loads, `dialogue` asks the model, `wrap` breaks its lines. Without a terminal the
//! same loop reads lines from standard input and prints answers only, so it can be scripted.

mod command;
mod dialogue;
mod input;
mod interrupt;
mod setting;
mod transcript;
mod wrap;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use pagella::Math;

use crate::flags::{ModelFlags, OutputFlags, SamplingFlags, TokenFlags};
use crate::output::{self, LoadBar};
use dialogue::{Dialogue, Flow};
use input::{Input, Line};
use interrupt::Interrupt;
#[cfg(test)]
pub use setting::MAX_NEW_TOKENS;
use setting::Settings;

/// Talk to a model
///
/// Type /help in the conversation for its commands. Ctrl-C stops an answer, Ctrl-D ends.
#[derive(Args)]
pub struct ChatArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(default_value = pagella::DEMO, env = "PAGELLA_MODEL")]
    model: String,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue a conversation written by /save
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &ChatArgs) -> Result<()> {
    let mut bar = LoadBar::new(args.output.json);
    let builder = args.model_flags.builder(&args.model, Math::Wide);
    let engine = builder.open_with(&mut |progress| bar.update(progress))?;
    drop(bar);
    output::warn(&engine);
    if !engine.has_chat_template() {
        return Err(pagella::Error::NoTemplate { dir: engine.facts().dir.clone() }.into());
    }
    args.tokens.check(&engine)?;
    let settings = Settings::new(&args.sampling, engine.default_sampling())?;
    let mut input = Input::new()?;
    let interrupt = Interrupt::install()?;
    let mut dialogue = Dialogue::new(&engine, settings, interrupt, args.output.json, &input);
    dialogue.set_tokens(args.tokens.clone());
    if let Some(text) = &args.system {
        dialogue.set_system(text);
    }
    if let Some(path) = &args.load {
        dialogue.load(path)?;
    }
    dialogue.greet();
    loop {
        let flow = match input.read("> ")? {
            Line::End => return Ok(()),
            Line::Interrupted => {
                dialogue.say("(Ctrl-D or /exit ends)");
                Flow::Continue
            }
            Line::Text(text) => dialogue.take(&text, &mut input)?,
        };
        if flow == Flow::End {
            return Ok(());
        }
    }
}
