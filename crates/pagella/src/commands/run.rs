//! `pagella run`: prompts in, answers out.

use std::io::Read;

use anyhow::{Context, Result};
use clap::Args;
use pagella::{Complete, Completion, DEMO, Engine, Math, Message};
use serde_json::Value;

use crate::flags::{ModelFlags, OutputFlags, SamplingFlags};
use crate::output::{self, LoadBar};
use crate::usage::Usage;

/// Tokens of an answer unless stated.
const MAX_NEW_TOKENS: usize = 512;
/// Longest prompt read from standard input, in bytes.
const STDIN_BYTES_MAX: u64 = 64 << 20;

/// Answer a prompt
///
/// The model's chat template is applied unless --raw is given. Several --prompt are answered one
/// after another; the answers are the same as for each alone.
#[derive(Args)]
pub struct RunArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(short, long, default_value = DEMO, env = "PAGELLA_MODEL")]
    model: String,
    /// The prompt; - reads it from standard input
    #[arg(value_name = "PROMPT", required_unless_present = "prompts", conflicts_with = "prompts")]
    prompt: Option<String>,
    /// A prompt; can be repeated
    #[arg(short, long = "prompt", value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// System message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Show control tokens in the answer
    #[arg(long)]
    special: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    let prompts = prompts(args)?;
    let mut bar = LoadBar::new(args.output.json);
    let builder = args.model_flags.builder(&args.model, Math::Wide);
    let engine = builder.open_with(&mut |progress| bar.update(progress))?;
    let mut answers = Vec::new();
    for (idx, prompt) in prompts.iter().enumerate() {
        let complete = complete(args, &engine, prompt)?;
        if args.output.json {
            answers.push(output::completion_json(&complete.run()?));
            continue;
        }
        if prompts.len() > 1 {
            let gap = if idx > 0 { "\n" } else { "" };
            output::print(&format!("{gap}--- prompt {} of {}\n", idx + 1, prompts.len()))?;
        }
        let done = stream(complete)?;
        if output::stderr_is_terminal() {
            output::note(&format!("({})", output::completion_line(&done)));
        }
    }
    match args.output.json {
        true if answers.len() == 1 => output::print_json(&answers.remove(0)),
        true => output::print_json(&Value::Array(answers)),
        false => Ok(()),
    }
}

/// The prompts, with `-` replaced by standard input.
fn prompts(args: &RunArgs) -> Result<Vec<String>> {
    let given: Vec<&String> = args.prompt.iter().chain(&args.prompts).collect();
    if given.iter().filter(|prompt| prompt.as_str() == "-").count() > 1 {
        return Err(Usage::error("standard input can be one prompt only: give - once"));
    }
    given
        .into_iter()
        .map(|prompt| if prompt == "-" { read_stdin() } else { Ok(prompt.clone()) })
        .collect()
}

fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1);
    input.read_to_end(&mut bytes).context("cannot read the prompt from standard input")?;
    anyhow::ensure!(
        bytes.len() as u64 <= STDIN_BYTES_MAX,
        "the prompt on standard input has more than {STDIN_BYTES_MAX} bytes: shorten it"
    );
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("the prompt on standard input is not UTF-8 at byte {at}: convert it")
    })
}

fn complete(args: &RunArgs, engine: &Engine, prompt: &str) -> Result<Complete> {
    let complete = if args.raw {
        engine.complete(prompt)
    } else {
        let system = args.system.iter().map(|text| Message::new("system", text));
        engine.complete_chat(system.chain([Message::new("user", prompt)]).collect())
    };
    let max_new_tokens = args.sampling.max_new_tokens.unwrap_or(MAX_NEW_TOKENS);
    let complete = args.sampling.apply(complete, engine.default_sampling())?;
    let complete = complete.max_tokens(max_new_tokens);
    Ok(if args.special { complete.show_special_tokens() } else { complete })
}

/// Prints the answer as it is written.
fn stream(complete: Complete) -> Result<Completion> {
    for event in complete.stream()? {
        let event = event?;
        output::print(&event.text)?;
        if let Some(done) = event.end {
            output::print("\n")?;
            return Ok(done);
        }
    }
    anyhow::bail!("the engine stopped without an answer: please report it")
}
