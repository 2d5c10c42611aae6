//! `pagella chat`: a conversation in the terminal.
//!
//! `input` reads lines, `command` understands those that start with a slash, `setting` knows what
//! can be changed, `transcript` saves and loads, `dialogue` asks the model, `show` prints its answers and
//! `wrap` breaks their lines. Without a terminal the same loop reads lines from standard input and prints answers only, so it can be scripted.

mod command;
mod dialogue;
mod input;
mod interrupt;
mod setting;
mod show;
mod transcript;
mod wrap;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use pagella::Math;
use serde_json::{Value, json};

use crate::flags::{AdapterFlags, DraftFlags, ModelFlags, OutputFlags, SamplingFlags, TokenFlags};
use crate::output::{self, LoadBar};
use dialogue::{Dialogue, Flow};
use input::{Input, InputLine};
use interrupt::Interrupt;
#[cfg(test)]
pub use setting::MAX_NEW_TOKENS;
use setting::Settings;
use show::Thoughts;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

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
    /// Tools that the model may call: a JSON list as OpenAI writes it. Calls are shown, and what you type is
    /// their result
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Whether a question leads to calls: auto, none, required, or the name of a tool
    #[arg(long, value_name = "CHOICE", requires = "tools")]
    tool_choice: Option<String>,
    /// What is done with reasoning on a terminal; elsewhere it is not printed
    #[arg(long, value_enum, default_value_t, value_name = "CHOICE")]
    reasoning: Thoughts,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    draft: DraftFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// The tools of a file: a list, or an object that has it as `tools`.
fn tool_list(path: &Path) -> Result<Value> {
    let json: Value = serde_json::from_slice(&read_bounded(path)?)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    Ok(match json {
        Value::Object(mut object) if object.contains_key("tools") => {
            object.remove("tools").unwrap_or_default()
        }
        list => list,
    })
}

/// A choice as clients write it.
fn tool_choice(text: &str) -> Value {
    match text {
        "auto" | "none" | "required" => text.into(),
        name => json!({ "name": name }),
    }
}

/// A file that people write.
fn read_bounded(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "{} is too large", path.display());
    Ok(bytes)
}

/// Runs the command.
pub fn run(args: &ChatArgs) -> Result<()> {
    let builder = args.draft.apply(args.model_flags.builder(&args.model, Math::Wide))?;
    let builder = args.adapters.apply(builder);
    output::show_placement(&builder, args.output.json)?;
    let mut bar = LoadBar::new(args.output.json);
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
    dialogue.set_thoughts(args.reasoning);
    if let Some(path) = &args.tools {
        let choice = args.tool_choice.as_deref().map(tool_choice);
        let list = tool_list(path)?;
        let set = dialogue.set_tools(&list, choice.as_ref());
        set.with_context(|| path.display().to_string())?;
    }
    dialogue.greet();
    loop {
        let flow = match input.read("> ")? {
            InputLine::End => return Ok(()),
            InputLine::Interrupted => {
                dialogue.say("(Ctrl-D or /exit ends)");
                Flow::Continue
            }
            InputLine::Text(text) => dialogue.take(&text, &mut input)?,
        };
        if flow == Flow::End {
            return Ok(());
        }
    }
}
