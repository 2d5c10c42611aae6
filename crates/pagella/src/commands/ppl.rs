//! `pagella ppl`: how likely a model finds a text, and how that compares with another program.
//!
//! The stable contract of `--json`: `ppl`, `nll` (mean, nats), `tokens`, `argmax_match`; with
//! `--expect` also `rms_logprob_diff`, `max_logprob_diff` and `compared_with`.

mod ids;
mod reference;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use pagella::{Math, Place, Session};
use pagella_backend::KvFormat;
use pagella_engine::{ScoredToken, score, score_steps};
use serde_json::json;

use crate::flags::{ModelFlags, OutputFlags};
use crate::output::{self, LoadBar};
use crate::usage::Usage;
use reference::{Comparison, Reference};

/// Measure perplexity
///
/// Reads token ids and feeds all but the last as one context; arithmetic is exact and the cache fp32
/// unless --math and --cache say otherwise. --expect compares with log-probabilities of another program; --prefill and --steps
/// measure token by token through the cache, then fp16, instead of in one pass.
#[derive(Args)]
pub struct PplArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(env = "PAGELLA_MODEL")]
    model: String,
    /// Token ids: a safetensors file with the tensor input_ids
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
    /// Tokens to feed at once before measuring step by step
    #[arg(long, value_name = "P", requires = "steps")]
    prefill: Option<usize>,
    /// Tokens to measure one by one, through the cache
    #[arg(long, value_name = "S", requires = "prefill")]
    steps: Option<usize>,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &PplArgs) -> Result<()> {
    let windows = windows(args)?;
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    anyhow::ensure!(longest >= 2, "there are fewer than two tokens: give a longer text");
    let cache = cache(args)?;
    let mut session = Session::new(load(args, longest, cache)?.forward);
    let mut scored = Vec::new();
    for window in &windows {
        ids::check_vocab(window, session.spec().vocab)?;
        scored.extend(match (args.prefill, args.steps) {
            (Some(prefill), Some(steps)) => score_steps(&mut session, window, prefill, steps)?,
            _ => score(&mut session, window)?,
        });
    }
    let mut comparison = None;
    if let Some(path) = &args.expect {
        let steps = args.prefill.map(|prefill| (prefill, cache));
        let reference = Reference::read(path, args.prefix.as_deref(), steps, scored.len())?;
        comparison = Some(reference.compare(&scored));
    }
    report(args, &scored, comparison.as_ref())
}

/// The ids to score, each list a context of its own.
fn windows(args: &PplArgs) -> Result<Vec<Vec<u32>>> {
    if let Some(path) = &args.ids {
        return Ok(vec![ids::read(path)?]);
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

fn report(args: &PplArgs, scored: &[ScoredToken], comparison: Option<&Comparison>) -> Result<()> {
    let nll = -scored.iter().map(|token| token.logprob).sum::<f64>() / scored.len() as f64;
    anyhow::ensure!(
        nll.is_finite(),
        "the model gave values that are not numbers: the weights are damaged or overflow"
    );
    let ppl = nll.exp();
    if !args.output.json {
        let mut facts = vec![
            ("perplexity", format!("{ppl:.4}")),
            ("mean nll", format!("{nll:.6}")),
            ("tokens", scored.len().to_string()),
        ];
        if let Some(comparison) = comparison {
            facts.extend(comparison.facts());
        }
        return Ok(output::print(&output::facts(&facts))?);
    }
    let mut object = json!({
        "ppl": ppl,
        "nll": nll,
        "tokens": scored.len(),
        "argmax_match": comparison.and_then(|c| c.argmax_match),
    });
    if let Some(comparison) = comparison {
        object["rms_logprob_diff"] = json!(comparison.rms);
        object["max_logprob_diff"] = json!(comparison.max);
        object["compared_with"] = json!(comparison.name);
    }
    output::print_json(&object)
}
