//! `pagella ppl`: how likely a model finds a text, and how that compares with another program.
//!
//! The stable contract of `--json`: `ppl`, `nll` (mean, nats), `tokens`, `argmax_match`; with
//! `--expect` also `rms_logprob_diff`, `max_logprob_diff` and `compared_with`; with several rows of ids
//! also `rows`, the same of each.

mod ids;
mod reference;
mod report;
mod tensors;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use pagella::{Math, Place, Session};
use pagella_backend::KvFormat;
use pagella_engine::{score, score_steps};
use pagella_model::BoundAdapter;

use crate::flags::{AdapterFlags, ModelFlags, OutputFlags};
use crate::output::{self, LoadBar};
use crate::usage::Usage;
use reference::{Reference, Scope};
use report::Report;

/// Measure perplexity
///
/// Reads token ids and feeds all but the last as one context, each row of them for itself; arithmetic is
/// exact and the cache fp32 unless --math and --cache say otherwise. --expect compares with
/// log-probabilities of another program, and --max-rms fails (1) where they differ by more; --prefill and
/// --steps measure token by token through the cache, then fp16, instead of in one pass.
#[derive(Args)]
pub struct PplArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(env = "PAGELLA_MODEL")]
    model: String,
    /// Token ids: a safetensors file with the tensor input_ids, [n] or [rows, n]
    #[arg(long, value_name = "FILE", required_unless_present = "text", conflicts_with = "text")]
    ids: Option<PathBuf>,
    /// A text file, cut into pieces of the context's length
    #[arg(long, value_name = "FILE", conflicts_with_all = ["expect", "prefill"])]
    text: Option<PathBuf>,
    /// Reference values: a safetensors file with logprob_full and argmax_full
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Prefix of the reference's tensors, without the dot
    #[arg(long, value_name = "NAME", requires = "expect")]
    prefix: Option<String>,
    /// Largest RMS difference in log-probability to accept, in nats
    #[arg(long, value_name = "X", requires = "expect", value_parser = tolerance)]
    max_rms: Option<f64>,
    /// Tokens to feed at once before measuring step by step
    #[arg(long, value_name = "P", requires = "steps")]
    prefill: Option<usize>,
    /// Tokens to measure one by one, through the cache
    #[arg(long, value_name = "S", requires = "prefill", value_parser = step_count)]
    steps: Option<usize>,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &PplArgs) -> Result<()> {
    let texts = texts(args)?;
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    anyhow::ensure!(longest >= 2, "there are fewer than two tokens: give a longer text");
    let cache = cache(args)?;
    let reference = match &args.expect {
        Some(path) => {
            let scope = scope(args, texts.len(), longest - 1, cache)?;
            Some(Reference::read(path, args.prefix.as_deref(), &scope)?)
        }
        None => None,
    };
    let mut session = Session::new(load(args, longest, cache)?.forward);
    for (dir, scale) in args.adapters.all() {
        session.add_adapter(&BoundAdapter::open(dir, session.spec())?, *scale)?;
    }
    ids::check_vocab(&texts, session.spec().vocab)?;
    let mut rows = Vec::new();
    for ids in &texts {
        rows.push(match (args.prefill, args.steps) {
            (Some(prefill), Some(steps)) => score_steps(&mut session, ids, prefill, steps)?,
            _ => score(&mut session, ids)?,
        });
    }
    if args.text.is_some() {
        // Its pieces are one text.
        rows = vec![rows.concat()];
    }
    let report = Report::new(&rows, reference.as_ref())?;
    match args.output.json {
        true => output::print_json(&report.json())?,
        false => output::report(&report.text())?,
    }
    match (report.rms(), args.max_rms) {
        (Some(rms), Some(max)) if rms > max => {
            anyhow::bail!("the RMS difference {rms:.3e} is larger than --max-rms {max:.3e}")
        }
        _ => Ok(()),
    }
}

/// The ids to score, each list a context of its own.
fn texts(args: &PplArgs) -> Result<Vec<Vec<u32>>> {
    if let Some(path) = &args.ids {
        return ids::read(path);
    }
    let Some(path) = &args.text else {
        return Err(Usage::error("give --ids or --text"));
    };
    let builder = args.model_flags.builder(&args.model, Math::Exact);
    let dir = builder.dir()?;
    let spec = builder.spec(&dir)?;
    let capacity = spec.context.min(builder.cache_tokens_for(&spec));
    let text_ids = ids::of_text(path, &dir)?;
    // Scoring n tokens needs a context of n - 1.
    Ok(text_ids.chunks(capacity + 1).filter(|w| w.len() > 1).map(<[u32]>::to_vec).collect())
}

/// Which tokens will be scored of `n_rows` texts that have `row_tokens` each after their first.
fn scope(args: &PplArgs, n_rows: usize, row_tokens: usize, cache: KvFormat) -> Result<Scope> {
    let (scored, stepwise) = match (args.prefill, args.steps) {
        (Some(prefill), Some(steps)) => (prefill..prefill.saturating_add(steps), Some(cache)),
        _ => (0..row_tokens, None),
    };
    anyhow::ensure!(
        scored.end <= row_tokens,
        "{} tokens cannot be measured of {}: lower --prefill or --steps",
        scored.end + 1,
        row_tokens + 1
    );
    Ok(Scope { n_rows, row_tokens, scored, stepwise })
}

/// One pass compares with full-precision programs, so it rounds no key or value where the device
/// allows that; step by step it is the cache itself that is measured.
fn cache(args: &PplArgs) -> Result<KvFormat> {
    let place = args.model_flags.device.place()?;
    let whole = args.prefill.is_none() && place == Place::Cpu;
    let default = if whole { KvFormat::F32 } else { KvFormat::F16 };
    Ok(args.model_flags.cache_or(default))
}

fn load(args: &PplArgs, longest: usize, cache: KvFormat) -> Result<pagella::LoadedModel> {
    let mut bar = LoadBar::new(args.output.json);
    let mut builder = args.model_flags.builder(&args.model, Math::Exact).cache(cache);
    if args.model_flags.cache_tokens.is_none() {
        builder = builder.cache_tokens(longest - 1);
    }
    Ok(builder.load(&mut |progress| bar.update(progress))?)
}

/// A difference that can be compared with.
fn tolerance(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "give a number that is not negative".to_owned())
}

/// At least one step is measured.
fn step_count(text: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|steps| *steps > 0);
    value.ok_or_else(|| "give a number of tokens from 1".to_owned())
}
