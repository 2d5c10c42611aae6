//! What adapters cost: the same rows written with adapters and without, in turns, and how long a step
//! waits while one is loaded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use pagella::{Adapter, Generator, JobOptions, JobSpec, JobStream, LoadProgress, Math, Stage};
use pagella_backend::PAGE_TOKENS;
use pagella_engine::{GeneratorOptions, Worker};
use pagella_model::BoundAdapter;
use serde_json::json;

use super::draft::numbered;
use super::measure::Rates;
use super::{BenchArgs, known_preset, synthetic_weights};
use crate::output::{self, LoadBar};

/// Steps before an adapter is loaded and after the last one.
const QUIET_STEPS: usize = 50;
/// Tokens of a row while adapters are loaded: as many as that may take.
const LOADING_TOKENS: usize = 4096 - PAGE_TOKENS;

/// Writing with adapters.
#[derive(Args)]
#[command(next_help_heading = "Adapters")]
pub struct AdapterBenchFlags {
    /// Compare with this many adapters, made in memory, over the rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "draft")]
    adapters: Option<u16>,
    /// Their rank
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024), requires = "adapters")]
    adapter_rank: u16,
    /// How many sequences write at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256), requires = "adapters")]
    adapter_rows: u16,
}

impl AdapterBenchFlags {
    /// Whether adapters are to be measured.
    pub fn wanted(&self) -> bool {
        self.adapters.is_some()
    }
}

/// Compares.
pub fn run(args: &BenchArgs) -> Result<()> {
    let flags = &args.adapters;
    let (generator, device) = load(args)?;
    let spec = generator.forward().spec().clone();
    let worker = Worker::spawn(generator)?;
    let rows = usize::from(flags.adapter_rows);
    let bound = |index| BoundAdapter::synthetic(&spec, flags.adapter_rank.into(), index);
    let bytes = bound(0).bytes();
    let waits = Waits::measure(&worker, rows, |worker| {
        let names = 0..u64::from(flags.adapters.unwrap_or(1));
        names.map(|index| Ok(worker.add_adapter(&index.to_string(), bound(index))?)).collect()
    })?;
    let bench =
        Writing { rows, steps: args.batch_steps as usize, repetitions: args.repetitions as usize };
    let adapters = waits.adapters.clone();
    let seconds = worker.call(move |generator| bench.measure(generator, &adapters))??;
    let tokens = rows * args.batch_steps as usize;
    let [without, with] = seconds.each_ref().map(|seconds| Rates::of(tokens, seconds));
    let pairs = seconds[0].iter().zip(&seconds[1]);
    let mut costs: Vec<f64> = pairs.map(|(without, with)| with / without - 1.0).collect();
    costs.sort_by(f64::total_cmp);
    report(args, &Report { device, bytes, without, with, cost: costs[costs.len() / 2], waits })
}

fn load(args: &BenchArgs) -> Result<(Generator, String)> {
    let mut bar = LoadBar::new(args.output.json);
    let mut progress = |progress: &LoadProgress<'_>| bar.update(progress);
    let mut builder =
        args.model_flags.builder(args.model.as_deref().unwrap_or_default(), Math::Wide);
    if args.model_flags.cache_tokens.is_none() {
        let row = LOADING_TOKENS.max(args.batch_steps as usize * args.repetitions as usize) + 1;
        let row = row.div_ceil(PAGE_TOKENS) * PAGE_TOKENS;
        builder = builder.cache_tokens(usize::from(args.adapters.adapter_rows) * row);
    }
    let loaded = match &args.synthetic {
        Some(preset) => {
            known_preset(preset)?;
            builder.load_synthetic(preset, synthetic_weights(args), &mut progress)?
        }
        None => builder.load(&mut progress)?,
    };
    let tokenizer = numbered(loaded.forward.spec().vocab)?;
    let mut generator = Generator::new(loaded.forward, tokenizer, GeneratorOptions::default())?;
    generator.warmup()?;
    Ok((generator, loaded.device))
}

/// A job of a row: different from the first token on, so that nothing is shared.
fn job(
    row: usize,
    adapters: Vec<(Adapter, f32)>,
    max_new_tokens: Option<usize>,
) -> Result<JobSpec> {
    let options = JobOptions { adapters: Some(adapters), max_new_tokens, ..JobOptions::default() };
    Ok(JobSpec::new(vec![row as u32 + 1], options)?)
}

/// How long steps take while adapters are loaded, in seconds.
struct Waits {
    adapters: Vec<Adapter>,
    /// Median of a step when nothing is loaded.
    usual: f64,
    /// Longest step when nothing is loaded.
    usual_max: f64,
    /// Longest step meanwhile.
    loading_max: f64,
    /// Of all loads.
    load_seconds: f64,
}

impl Waits {
    /// Rows without adapters write meanwhile.
    fn measure(
        worker: &Worker,
        rows: usize,
        load: impl FnOnce(&Worker) -> Result<Vec<Adapter>>,
    ) -> Result<Self> {
        let jobs = (0..rows).map(|row| job(row, Vec::new(), Some(LOADING_TOKENS)));
        let mut streams: Vec<JobStream> =
            jobs.map(|job| Ok(worker.submit(job?)?)).collect::<Result<_>>()?;
        let mut last = streams.pop().context("there are no rows")?;
        let (settled, all_settled) = mpsc::channel();
        let loaded = Arc::new(AtomicBool::new(false));
        let is_loaded = loaded.clone();
        let reader = thread::spawn(move || -> Result<Vec<Instant>> {
            let mut times: Vec<Instant> = Vec::new();
            let mut after = 0;
            while after < QUIET_STEPS {
                let record = last.next().context("the stream ended")??;
                ensure!(!record.is_last(), "the rows ended before all adapters were loaded");
                times.push(Instant::now());
                if times.len() == QUIET_STEPS {
                    // Nobody may listen any more.
                    let _ = settled.send(());
                }
                after += usize::from(is_loaded.load(Ordering::Relaxed));
            }
            Ok(times)
        });
        all_settled.recv().context("the rows never wrote")?;
        let begin = Instant::now();
        let adapters = load(worker)?;
        let end = Instant::now();
        loaded.store(true, Ordering::Relaxed);
        let times = reader.join().map_err(|_| anyhow!("the reader is gone"))??;
        drop(streams);
        // A step that was under way when loading began or ended may have waited for it.
        let (meanwhile, quiet): (Vec<&[Instant]>, Vec<&[Instant]>) =
            times.windows(2).partition(|step| step[1] >= begin && step[0] <= end);
        let seconds = |steps: Vec<&[Instant]>| -> Vec<f64> {
            steps.iter().map(|step| (step[1] - step[0]).as_secs_f64()).collect()
        };
        let (meanwhile, mut quiet) = (seconds(meanwhile), seconds(quiet));
        quiet.sort_by(f64::total_cmp);
        let longest = |steps: &[f64]| steps.iter().copied().fold(0.0, f64::max);
        Ok(Waits {
            adapters,
            usual: quiet.get(quiet.len() / 2).copied().unwrap_or_default(),
            usual_max: longest(&quiet),
            loading_max: longest(&meanwhile),
            load_seconds: (end - begin).as_secs_f64(),
        })
    }
}

/// Rows that write, with adapters and without.
struct Writing {
    rows: usize,
    steps: usize,
    repetitions: usize,
}

impl Writing {
    /// Seconds of every repetition without and with adapters.
    fn measure(&self, generator: &mut Generator, adapters: &[Adapter]) -> Result<[Vec<f64>; 2]> {
        let mut seconds: [Vec<f64>; 2] = Default::default();
        // Once more than is counted, so that everything that is made on first use is there.
        for _ in 0..=self.repetitions {
            for (times, adapters) in seconds.iter_mut().zip([&[], adapters]) {
                times.push(self.seconds(generator, adapters)?);
            }
        }
        Ok(seconds.map(|times| times[1..].to_vec()))
    }

    fn seconds(&self, generator: &mut Generator, adapters: &[Adapter]) -> Result<f64> {
        generator.clear_queue();
        generator.reset_page_table();
        for row in 0..self.rows {
            let own = adapters.get(row % adapters.len().max(1));
            let own = own.map(|adapter| (adapter.clone(), 1.0)).into_iter().collect();
            generator.enqueue(job(row, own, None)?)?;
        }
        while generator.stats().queue.decoding < self.rows {
            generator.step();
        }
        let started = Instant::now();
        for _ in 0..self.steps {
            let records = generator.step();
            let written = records.iter().filter(|r| r.stage == Stage::Streaming).count();
            ensure!(written == self.rows, "a row ended early: lower --batch-steps");
        }
        let seconds = started.elapsed().as_secs_f64();
        generator.clear_queue();
        Ok(seconds)
    }
}

struct Report {
    device: String,
    /// Of one adapter.
    bytes: u64,
    without: Rates,
    with: Rates,
    /// Median share of time that adapters add.
    cost: f64,
    waits: Waits,
}

fn report(args: &BenchArgs, found: &Report) -> Result<()> {
    let Report { device, bytes, without, with, cost, waits } = found;
    let model = args.model.as_deref().or(args.synthetic.as_deref()).unwrap_or_default();
    let (count, rank) = (waits.adapters.len(), args.adapters.adapter_rank);
    let rows = args.adapters.adapter_rows;
    if args.output.json {
        return output::print_json(&json!({
            "model": model,
            "device": device,
            "adapters": count,
            "rank": rank,
            "adapter_bytes": bytes,
            "rows": rows,
            "plain_tokens_per_s": without.json(),
            "adapted_tokens_per_s": with.json(),
            "cost": cost,
            "step_ms": 1e3 * waits.usual,
            "step_max_ms": 1e3 * waits.usual_max,
            "loading_step_max_ms": 1e3 * waits.loading_max,
            "load_seconds": waits.load_seconds,
        }));
    }
    let each = output::bytes(*bytes);
    let loaded = format!(
        "{:.2} s; the longest step took {:.1} ms meanwhile, else {:.1} ms, usually {:.1} ms",
        waits.load_seconds,
        1e3 * waits.loading_max,
        1e3 * waits.usual_max,
        1e3 * waits.usual
    );
    let lines = [
        ("model", model.to_owned()),
        ("device", device.clone()),
        ("adapters", format!("{count} of rank {rank}, {each} each, over {rows} rows")),
        ("without", without.text()),
        ("with", with.text()),
        ("cost", format!("{:.1} % (median of {} pairs)", 100.0 * cost, args.repetitions)),
        ("loading", loaded),
    ];
    Ok(output::report(&output::facts(&lines))?)
}
