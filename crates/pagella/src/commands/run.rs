//! `pagella run`: prompts in, answers out.
//!
//! One prompt is printed as it is written. Several, or several answers to one, are computed as one
//! batch (`batch`), which `pages` can draw.

mod answer;
mod batch;
mod pages;

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use pagella::{Complete, ConstraintSpec, DEMO, Engine, EngineError, Math, Message};

use crate::flags::{BatchFlags, ConstraintFlags, ModelFlags, OutputFlags, SamplingFlags};
use crate::output::{self, LoadBar};
use crate::usage::Usage;

/// Tokens of an answer unless stated.
const MAX_NEW_TOKENS: usize = 512;
/// Longest prompt read from standard input, in bytes.
const STDIN_BYTES_MAX: u64 = 64 << 20;

/// Answer a prompt
///
/// The model's chat template is applied unless --raw is given. Several --prompt are computed
/// together; the answers are the same as for each alone.
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
    /// Answers to every prompt, with seeds counting up
    #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    n: u16,
    /// Write the end of the prompt again, so that a word may run across it
    #[arg(long)]
    heal: bool,
    /// Steer away from the answer to this prompt
    #[arg(long, value_name = "TEXT", requires = "cfg_scale")]
    negative: Option<String>,
    /// How far: 1 is not at all
    #[arg(long, value_name = "S", requires = "negative", allow_negative_numbers = true)]
    cfg_scale: Option<f32>,
    /// Do not end at the model's own end tokens
    #[arg(long)]
    no_default_stops: bool,
    /// End the answer after this time with what is there
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Share the cache only with prompts of the same salt
    #[arg(long, value_name = "TEXT")]
    salt: Option<String>,
    /// Show control tokens in the answer
    #[arg(long)]
    special: bool,
    /// Log-probabilities of every token and of K alternatives
    #[arg(long, value_name = "K", requires = "json")]
    logprobs: Option<u16>,
    /// Draw the pages of the cache and the jobs while they run
    #[arg(long)]
    show_pages: bool,
    #[command(flatten)]
    constraint: ConstraintFlags,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    batch: BatchFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    args.sampling.check()?;
    let constraint = args.constraint.spec()?;
    let prompts = prompts(args)?;
    let mut bar = LoadBar::new(args.output.json);
    let builder = args.batch.apply(args.model_flags.builder(&args.model, Math::Wide));
    let engine = builder.open_with(&mut |progress| bar.update(progress))?;
    drop(bar);
    output::warn(&engine);
    let complete = |prompt: &String| complete(args, &engine, prompt, constraint.as_ref());
    let completes: Vec<Complete> = prompts.iter().map(complete).collect::<Result<_>>()?;
    match <[Complete; 1]>::try_from(completes) {
        Ok([one]) if args.n == 1 && !args.show_pages => run_one(args, &engine, one),
        Ok(one) => batch::run(args, &engine, one.into()),
        Err(many) => batch::run(args, &engine, many),
    }
}

fn run_one(args: &RunArgs, engine: &Engine, complete: Complete) -> Result<()> {
    if args.output.json {
        let record = complete.record().map_err(blame)?;
        return output::print_json(&answer::json(&record, engine.tokenizer())?);
    }
    for record in complete.stream().map_err(blame)? {
        let record = record?;
        output::print(&record.text)?;
        if let Some(done) = record.eos {
            output::print("\n")?;
            answer::note(&done);
            return Ok(());
        }
    }
    anyhow::bail!("the engine stopped without an answer: please report it")
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

fn complete(
    args: &RunArgs,
    engine: &Engine,
    prompt: &str,
    constraint: Option<&ConstraintSpec>,
) -> Result<Complete> {
    let messages = |prompt: &str| -> Vec<Message> {
        let system = args.system.iter().map(|text| Message::new("system", text));
        system.chain([Message::new("user", prompt)]).collect()
    };
    let complete = match args.raw {
        true => engine.complete(prompt),
        false => engine.complete_chat(messages(prompt)),
    };
    let mut complete = args.sampling.apply(complete, engine.default_sampling())?;
    complete = complete.max_tokens(args.sampling.max_new_tokens.unwrap_or(MAX_NEW_TOKENS));
    complete = complete.n(usize::from(args.n));
    match (&args.negative, args.cfg_scale) {
        (Some(text), Some(scale)) if args.raw => complete = complete.negative(text, scale),
        (Some(text), Some(scale)) => complete = complete.negative_chat(messages(text), scale),
        _ => {}
    }
    if let Some(constraint) = constraint {
        complete = complete.constrain(constraint.clone());
    }
    if let Some(alternatives) = args.logprobs {
        complete = complete.logprobs(usize::from(alternatives));
    }
    if let Some(time) = args.timeout {
        complete = complete.timeout(time);
    }
    if let Some(salt) = &args.salt {
        complete = complete.cache_salt(salt);
    }
    for (given, set) in [
        (args.heal, Complete::heal as fn(Complete) -> Complete),
        (args.no_default_stops, Complete::no_default_stops),
        (args.special, Complete::show_special_tokens),
    ] {
        if given {
            complete = set(complete);
        }
    }
    Ok(complete)
}

/// Refusals of what the command line says are wrong usage; everything else is a failure.
fn blame(error: pagella::Error) -> anyhow::Error {
    let usage = match &error {
        pagella::Error::Engine(error) => matches!(
            **error,
            EngineError::Constraint(_)
                | EngineError::Options(_)
                | EngineError::PromptWeights { .. }
        ),
        _ => false,
    };
    if usage { Usage::error(error.to_string()) } else { error.into() }
}

/// A time that is some time.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "give a number of seconds above 0".to_owned())
}
