//! What guessing tokens gains: the same texts written with guesses and without, in turns.
//!
//! How often guesses are right decides, and weights made for measuring cannot show it. With
//! `--draft-accepted` the ids that were written without guesses are told with as many mistakes as
//! that says, while the draft model works as ever.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use pagella::{
    DraftDepth, DraftOptions, EngineBuilder, Generator, JobOptions, JobSpec, LoadProgress,
    LoadedModel, Math, SampleOptions, Tokenizer,
};
use pagella_backend::PAGE_TOKENS;
use pagella_engine::{DraftModel, DraftStats, GeneratorOptions, Rehearsal};
use serde_json::json;

use super::measure::Rates;
use super::{BenchArgs, known_preset, synthetic_weights};
use crate::flags::draft_depth;
use crate::output::{self, LoadBar};
use crate::usage::Usage;

/// Guesses from the texts themselves.
const LOOKUP: &str = "lookup";
/// A text that repeats itself, for models that have a tokenizer.
const REPEATING: &str = "- `length`: the number of elements.\n- `name`: the name of the element.\n";
/// How often it does so.
const REPETITIONS: usize = 4;

/// Writing with guessed tokens.
#[derive(Args)]
#[command(next_help_heading = "Drafting")]
pub struct DraftBenchFlags {
    /// Compare with guessed tokens: of a model, of a shape with --synthetic, or lookup (in the text itself)
    #[arg(long, value_name = "MODEL")]
    draft: Option<String>,
    /// Tokens guessed at once: auto (as many as pay), or a number
    #[arg(long, value_name = "N", default_value = "auto", value_parser = draft_depth, requires = "draft")]
    draft_tokens: DraftDepth,
    /// Share of guesses that are made right, from 0 to 1
    #[arg(long, value_name = "P", requires = "draft")]
    draft_accepted: Option<f64>,
    /// How many sequences write at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), requires = "draft")]
    draft_rows: u16,
    /// Temperature of the texts; above 0 they are hard to guess
    #[arg(long, value_name = "T", default_value_t = 0.0, requires = "draft")]
    draft_temperature: f32,
}

impl DraftBenchFlags {
    /// Whether drafting is to be measured.
    pub fn wanted(&self) -> bool {
        self.draft.is_some()
    }

    /// The model that guesses, if one does.
    fn model(&self) -> Option<&str> {
        self.draft.as_deref().filter(|draft| *draft != LOOKUP)
    }
}

/// Compares.
pub fn run(args: &BenchArgs) -> Result<()> {
    if args.draft.draft_accepted.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(Usage::error("--draft-accepted is a share from 0 to 1"));
    }
    let (mut generator, facts) = load(args)?;
    generator.warmup()?;
    let bench = DraftBench {
        flags: &args.draft,
        prompts: prompts(args, &facts.tokenizer, generator.forward().spec().vocab)?,
        new_tokens: args.new_tokens as usize,
    };
    // Both ways once, so that everything that is made on first use is there.
    let texts = bench.write(&mut generator, None)?.ids;
    bench.write(&mut generator, Some(&texts))?;
    let mut seconds: [Vec<f64>; 2] = Default::default();
    let before = generator.stats().draft;
    for _ in 0..args.repetitions {
        for (times, known) in seconds.iter_mut().zip([None, Some(&texts)]) {
            let written = bench.write(&mut generator, known)?;
            ensure!(written.ids == texts, "texts with and without guesses differ: report this");
            times.push(written.seconds);
        }
    }
    let tokens = bench.prompts.len() * (bench.new_tokens - 1);
    let [without, with] = seconds.each_ref().map(|seconds| Rates::of(tokens, seconds));
    let mut ratios: Vec<f64> =
        seconds[0].iter().zip(&seconds[1]).map(|(without, with)| without / with).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let guessed = since(before, generator.stats().draft);
    report(args, &facts.device, &without, &with, ratio, &guessed)
}

struct Loaded {
    tokenizer: Tokenizer,
    device: String,
}

struct DraftBench<'a> {
    flags: &'a DraftBenchFlags,
    prompts: Vec<Vec<u32>>,
    new_tokens: usize,
}

/// One run.
struct Written {
    /// Ids of every row.
    ids: Vec<Arc<[u32]>>,
    /// From the first token of the last row on.
    seconds: f64,
}

impl DraftBench<'_> {
    /// Lets all rows write; with guesses if their texts are known.
    fn write(&self, generator: &mut Generator, known: Option<&Vec<Arc<[u32]>>>) -> Result<Written> {
        generator.reset_page_table();
        let mut serials = Vec::new();
        for (row, prompt) in self.prompts.iter().enumerate() {
            let rehearsal = self.flags.draft_accepted.zip(known).map(|(accepted, known)| {
                let ids = known[row].clone();
                Rehearsal { ids, accepted }
            });
            let sampling = SampleOptions {
                temperature: self.flags.draft_temperature,
                seed: row as u64,
                ..SampleOptions::default()
            };
            let options = JobOptions {
                max_new_tokens: Some(self.new_tokens),
                draft_depth: known.is_none().then_some(DraftDepth::Off),
                rehearsal,
                sampling,
                ..JobOptions::default()
            };
            serials.push(generator.enqueue(JobSpec::new(prompt.clone(), options)?)?);
        }
        let mut ids: Vec<Arc<[u32]>> = vec![Arc::default(); serials.len()];
        let mut started = None;
        while generator.n_jobs() > 0 {
            let records = generator.step();
            if started.is_none() && generator.stats().queue.decoding == serials.len() {
                started = Some(Instant::now());
            }
            for record in records {
                let row = serials.iter().position(|serial| *serial == record.serial);
                if let (Some(row), Some(done)) = (row, record.eos) {
                    ensure!(done.error.is_none(), "{:?}", done.error);
                    ids[row] = done.token_ids.into();
                }
            }
        }
        let started =
            started.context("the rows never wrote together: ask for more --new-tokens")?;
        Ok(Written { ids, seconds: started.elapsed().as_secs_f64() })
    }
}

fn since(before: DraftStats, now: DraftStats) -> DraftStats {
    DraftStats {
        steps: now.steps - before.steps,
        guessed: now.guessed - before.guessed,
        accepted: now.accepted - before.accepted,
        rejected: now.rejected - before.rejected,
        seconds: now.seconds - before.seconds,
        ..now
    }
}

fn load(args: &BenchArgs) -> Result<(Generator, Loaded)> {
    let mut bar = LoadBar::new(args.output.json);
    let mut progress = |progress: &LoadProgress<'_>| bar.update(progress);
    let mut builder =
        args.model_flags.builder(args.model.as_deref().unwrap_or_default(), Math::Wide);
    if args.model_flags.cache_tokens.is_none() {
        let row = prompt_tokens(args) + args.new_tokens as usize + 1;
        let row = row.div_ceil(PAGE_TOKENS) * PAGE_TOKENS;
        builder = builder.cache_tokens(usize::from(args.draft.draft_rows) * row);
    }
    let (loaded, draft, tokenizer) = match &args.synthetic {
        Some(preset) => synthetic(args, preset, &builder, &mut progress)?,
        None => {
            if let Some(model) = args.draft.model() {
                builder = builder.draft(model);
            }
            builder.load_drafting(&mut progress)?
        }
    };
    let draft_options = DraftOptions { depth: args.draft.draft_tokens, ..DraftOptions::default() };
    // Guesses that are made right or wrong need not be likely, too.
    let probability_min = match args.draft.draft_accepted {
        Some(_) => 0.0,
        None => draft_options.probability_min,
    };
    // Nor are texts of earlier repetitions of any use but to cheat.
    let draft_options = DraftOptions { probability_min, recent_ids_max: 0, ..draft_options };
    let options = GeneratorOptions { draft: draft_options, ..GeneratorOptions::default() };
    let mut generator = Generator::new(loaded.forward, tokenizer.clone(), options)?;
    if let Some(draft) = draft {
        generator.set_draft_model(draft)?;
    }
    Ok((generator, Loaded { tokenizer, device: loaded.device }))
}

/// Models of published shapes, with a tokenizer that has a token for every id.
fn synthetic(
    args: &BenchArgs,
    preset: &str,
    builder: &EngineBuilder,
    progress: &mut pagella_model::ProgressFn<'_>,
) -> Result<(LoadedModel, Option<DraftModel>, Tokenizer)> {
    known_preset(preset)?;
    let weights = synthetic_weights(args);
    match args.draft.model() {
        None => {
            let loaded = builder.load_synthetic(preset, weights, progress)?;
            let tokenizer = numbered(loaded.forward.spec().vocab)?;
            Ok((loaded, None, tokenizer))
        }
        Some(draft) => {
            known_preset(draft)?;
            let (loaded, small) = builder.load_synthetic_pair(preset, draft, weights, progress)?;
            let vocab = loaded.forward.spec().vocab;
            let (own, tokenizer) = (small.forward.spec().vocab.min(vocab), numbered(vocab)?);
            let model = DraftModel::new(small.forward, &numbered(own)?, &tokenizer)?;
            Ok((loaded, Some(model), tokenizer))
        }
    }
}

/// A tokenizer of so many tokens that are their numbers.
pub(super) fn numbered(vocab: usize) -> Result<Tokenizer> {
    let tokens: Vec<String> = (0..vocab).map(|id| format!("\"{id};\": {id}")).collect();
    let json = format!(
        r#"{{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}}"#,
        tokens.join(", ")
    );
    Ok(Tokenizer::from_json_bytes(json.as_bytes())?)
}

/// Tokens of a prompt, as far as they are known before the model is.
fn prompt_tokens(args: &BenchArgs) -> usize {
    (args.context as usize).max(REPETITIONS * REPEATING.len())
}

/// A prompt for every row, which share nothing.
fn prompts(args: &BenchArgs, tokenizer: &Tokenizer, vocab: usize) -> Result<Vec<Vec<u32>>> {
    let rows = usize::from(args.draft.draft_rows);
    let text = match args.synthetic {
        Some(_) => Vec::new(),
        None => tokenizer.encode_text(&REPEATING.repeat(REPETITIONS))?,
    };
    let prompt = |row: usize| {
        let id = |at: usize| ((at * 7919 + row) % vocab) as u32;
        let past = (args.context as usize).saturating_sub(text.len()).max(1);
        (0..past).map(id).chain(text.iter().copied()).collect()
    };
    Ok((0..rows).map(prompt).collect())
}

fn report(
    args: &BenchArgs,
    device: &str,
    without: &Rates,
    with: &Rates,
    ratio: f64,
    guessed: &DraftStats,
) -> Result<()> {
    let judged = guessed.accepted + guessed.rejected;
    let right = guessed.accepted as f64 / judged.max(1) as f64;
    let model = args.model.as_deref().or(args.synthetic.as_deref()).unwrap_or_default();
    if args.output.json {
        return output::print_json(&json!({
            "model": model,
            "draft": args.draft.draft,
            "device": device,
            "rows": args.draft.draft_rows,
            "new_tokens": args.new_tokens,
            "context": args.context,
            "decode_tokens_per_s": without.json(),
            "drafted_tokens_per_s": with.json(),
            "ratio": ratio,
            "draft_stats": guessed,
        }));
    }
    let plural = if args.draft.draft_rows == 1 { "" } else { "s" };
    let lines = [
        ("model", model.to_owned()),
        ("drafts", args.draft.draft.clone().unwrap_or_default()),
        ("device", device.to_owned()),
        ("without", format!("{}, {} row{plural}", without.text(), args.draft.draft_rows)),
        ("with", with.text()),
        ("ratio", format!("{ratio:.2} (median of {} pairs)", args.repetitions)),
        (
            "guesses",
            format!(
                "{:.0} % of {} accepted, {:.1} a step in {} steps, {:.0} ms to guess",
                100.0 * right,
                judged,
                guessed.depth(),
                guessed.steps,
                1e3 * guessed.seconds
            ),
        ),
    ];
    Ok(output::report(&output::facts(&lines))?)
}
