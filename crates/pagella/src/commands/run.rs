//! `pagella run`: prompts in, answers out.
//!
//! One prompt is printed as it is written. Several, or several answers to one, are computed as one
//! batch (`batch`), which `pages` can draw; `jsonl` takes prompts from a file, each with settings of
//! its own. `prompt` makes jobs of them, `sequence` keeps what was computed.

mod answer;
mod batch;
mod jsonl;
mod pages;
mod prompt;
mod sequence;

use std::io::Read;

use anyhow::{Context, Result};
use clap::Args;
use pagella::{Complete, Completion, DEMO, Engine, EngineError, Math};

use crate::flags::{
    AdapterFlags, BatchFlags, ConstraintFlags, DraftFlags, ModelFlags, OutputFlags, SamplingFlags,
};
use crate::output::{self, LoadBar};
use crate::usage::Usage;
use jsonl::JsonlFlags;
#[cfg(test)]
pub use prompt::MAX_NEW_TOKENS;
use prompt::{Asked, PromptFlags};
use sequence::SequenceFlags;

/// Longest prompt read from standard input, in bytes.
const STDIN_BYTES_MAX: u64 = 64 << 20;

/// Answer a prompt
///
/// The model's chat template is applied unless --raw is given. Several --prompt are computed
/// together; the answers are the same as for each alone. --batch takes them from a file, each with
/// settings of its own.
#[derive(Args)]
pub struct RunArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(short, long, default_value = DEMO, env = "PAGELLA_MODEL")]
    model: String,
    /// The prompt; - reads it from standard input
    #[arg(
        value_name = "PROMPT",
        required_unless_present_any = ["prompts", "jsonl", "restore"],
        conflicts_with = "prompts"
    )]
    prompt: Option<String>,
    /// A prompt; can be repeated
    #[arg(short, long = "prompt", value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Draw the pages of the cache and the jobs while they run
    #[arg(long)]
    show_pages: bool,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    prompt_flags: PromptFlags,
    #[command(flatten)]
    jsonl: JsonlFlags,
    #[command(flatten)]
    sequence: SequenceFlags,
    #[command(flatten)]
    constraint: ConstraintFlags,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    batch: BatchFlags,
    #[command(flatten)]
    draft: DraftFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    args.sampling.check()?;
    let constraint = args.constraint.spec()?;
    let prompts = prompts(args)?;
    let several = prompts.len() > 1 || args.prompt_flags.n > 1;
    if several && args.sequence.save.is_some() {
        return Err(Usage::error("--save-sequence keeps one sequence: give one prompt and no -n"));
    }
    args.jsonl.check()?;
    let jsonl = jsonl::read(args)?;
    let builder = args.batch.apply(args.model_flags.builder(&args.model, Math::Wide));
    let builder = args.draft.apply(builder)?;
    let builder = args.adapters.apply(builder);
    output::show_placement(&builder, args.output.json)?;
    let mut bar = LoadBar::new(args.output.json);
    let engine = builder.open_with(&mut |progress| bar.update(progress))?;
    drop(bar);
    output::warn(&engine);
    args.prompt_flags.tokens.check(&engine)?;
    let restored = args.sequence.restore(&engine, args.prompt_flags.salt.as_deref())?;
    if let Some(jsonl) = jsonl {
        return jsonl.run(args, &engine, constraint.as_ref());
    }
    let mut asked: Vec<Asked> = prompts.into_iter().map(Asked::Text).collect();
    if asked.is_empty() {
        asked.extend(restored.map(Asked::Ids));
    }
    let complete =
        |asked| args.prompt_flags.complete(&engine, asked, &args.sampling, constraint.as_ref());
    let completes: Vec<Complete> = asked.into_iter().map(complete).collect::<Result<_>>()?;
    match <[Complete; 1]>::try_from(completes) {
        Ok([one]) if !several && !args.show_pages => run_one(args, &engine, one),
        Ok(one) => batch::run(args, &engine, one.into()),
        Err(many) => batch::run(args, &engine, many),
    }
}

fn run_one(args: &RunArgs, engine: &Engine, complete: Complete) -> Result<()> {
    let salt = args.prompt_flags.salt.as_deref();
    let prompt = match args.sequence.save {
        Some(_) => complete.prompt_ids()?,
        None => Vec::new(),
    };
    let save = |done: &Completion| args.sequence.save(engine, prompt, done, salt);
    if args.output.json {
        let record = complete.record().map_err(blame)?;
        let mut object = answer::json(&record, engine.tokenizer())?;
        if let Some(stored) = record.eos.as_deref().map(save).transpose()?.flatten() {
            object["saved"] = sequence::json(stored);
        }
        return output::print_json(&object);
    }
    for record in complete.stream().map_err(blame)? {
        let record = record?;
        output::print(&record.text)?;
        if let Some(done) = record.eos {
            output::print("\n")?;
            answer::note(&done);
            save(&done)?;
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
