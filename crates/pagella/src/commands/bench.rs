//! `pagella bench`: how fast a model reads prompts and writes text here, and how close that is to
//! what the memory allows.
//!
//! Writing one token reads all weights once, so the speed of memory is the limit. It is measured in
//! the same run, before and after, because machines differ from minute to minute.

mod adapters;
mod against;
mod draft;
mod load_speed;
mod measure;
mod report;
mod sweep;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use pagella::{EngineBuilder, KvFormat, LoadedModel, Math, MemoryReport, Place, Session};
use pagella_cuda::MemoryGauge;
use pagella_engine::Forward;
use pagella_model::{LoadProgress, SyntheticWeights, synthetic};
use serde_json::json;

use crate::bandwidth::Bandwidth;
use crate::flags::{ModelFlags, OutputFlags};
use crate::machine::{Machine, peak_memory_bytes, reset_peak_memory};
use crate::output::{self, LoadBar};
use crate::usage::Usage;
use load_speed::{LoadClock, LoadSpeed};
use measure::{Measured, Workload};
use sweep::{BatchSizes, Sweep, Swept};

/// Passes over the buffer whose best gives the memory's speed.
const BANDWIDTH_PASSES: usize = 5;
/// Most repetitions with several sequences, which all go on in the same context.
const BATCH_REPETITIONS_MAX: usize = 10;

/// Measure prompt and generation speed
///
/// Prompt and writing are measured with one sequence, then writing with several at once (--batch).
/// With --synthetic, weights of a published shape are made in memory; their values do not matter for
/// speed. With --write they are written to a folder instead and nothing is measured: bench that folder
/// to see how fast a model loads. With --draft, writing with guessed tokens is compared with writing
/// without, with --adapters, writing with adapters, with --against, this program with llama.cpp, and
/// nothing else is measured.
#[derive(Args)]
pub struct BenchArgs {
    /// Model: a directory, a hub id in the local cache, or demo
    #[arg(required_unless_present = "synthetic", conflicts_with = "synthetic")]
    model: Option<String>,
    /// Make weights of this shape in memory, e.g. llama-3.1-8b
    #[arg(long, value_name = "NAME")]
    synthetic: Option<String>,
    /// Write the synthetic model (weights and config.json, no tokenizer) to this empty folder, and end
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// How synthetic weights are stored [default: exl2]
    #[arg(long, value_enum)]
    weights: Option<Weights>,
    /// Bits per weight of synthetic EXL2 (an average) or EXL3 weights (1 to 8) [default: 4.0]
    #[arg(long, value_name = "B")]
    bits: Option<f32>,
    /// Bits of the synthetic EXL2 or EXL3 head [default: 6]
    #[arg(long, value_name = "B")]
    head_bits: Option<u8>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt_tokens: u32,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    new_tokens: u32,
    /// Tokens already in the cache before writing starts
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: u32,
    /// How often each is measured; best and median are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// How many sequences to write at once, one after the other; none for no such measurement
    #[arg(long, value_name = "N,N,…", default_value = "1,2,4,8,16,32")]
    batch: BatchSizes,
    /// Steps of each of these, per repetition (at most 10 repetitions)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch_steps: u32,
    #[command(flatten)]
    against: against::AgainstFlags,
    #[command(flatten)]
    draft: draft::DraftBenchFlags,
    #[command(flatten)]
    adapters: adapters::AdapterBenchFlags,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Ways to store synthetic weights.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Weights {
    Exl2,
    Exl3,
    Gptq,
    F16,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<()> {
    check(args)?;
    if let (Some(dir), Some(preset)) = (&args.write, &args.synthetic) {
        return write(args, preset, dir);
    }
    if let Some((program, gguf)) = args.against.wanted() {
        return against::run(args, program, gguf);
    }
    if args.draft.wanted() {
        return draft::run(args);
    }
    if args.adapters.wanted() {
        return adapters::run(args);
    }
    let machine = Machine::look();
    let place = args.model_flags.builder("", Math::Wide).place()?;
    let threads = args.model_flags.threads.map_or(machine.cores, usize::from);
    let before = bandwidth(place, &machine, threads)?;
    // The buffer that was just read is no memory of the model.
    let peak_is_ours = reset_peak_memory();
    let gauge = match place {
        Place::Cpu => None,
        Place::Cuda(index) => Some(MemoryGauge::open(index)?),
    };
    let (forward, facts, load) = load(args)?;
    let workload = Workload {
        prompt_tokens: args.prompt_tokens as usize,
        new_tokens: args.new_tokens as usize,
        past_tokens: args.context as usize,
        repetitions: args.repetitions as usize,
    };
    let mut session = Session::new(forward);
    let measured = workload.measure(&mut session)?;
    let peak_bytes = peak_memory_bytes().filter(|_| peak_is_ours);
    let (swept, forward) = sweep(args).measure(session.into_forward())?;
    let device_bytes = gauge.map(|gauge| gauge.taken_bytes()).transpose()?;
    drop(forward);
    let bandwidth = before.max(bandwidth(place, &machine, threads)?);
    let run = Run {
        place,
        facts,
        measured,
        swept,
        bandwidth,
        threads,
        load,
        peak_bytes,
        device_bytes,
        machine,
    };
    report::print(args, &run)
}

/// Bytes per second that the memory of the device is read with.
fn bandwidth(place: Place, machine: &Machine, threads: usize) -> Result<f64> {
    match place {
        Place::Cpu => Ok(Bandwidth::new(machine, threads)?.measure(BANDWIDTH_PASSES)),
        Place::Cuda(index) => Ok(pagella_cuda::read_speed(index)?),
    }
}

/// Everything a report needs.
struct Run {
    place: Place,
    facts: ModelFacts,
    measured: Measured,
    swept: Vec<Swept>,
    /// Bytes per second.
    bandwidth: f64,
    threads: usize,
    load: LoadSpeed,
    /// Largest memory while loading and measuring one sequence, where the system tells.
    peak_bytes: Option<u64>,
    /// Memory of a GPU that was taken at the end, all batches measured.
    device_bytes: Option<u64>,
    machine: Machine,
}

/// What a report says of the model.
struct ModelFacts {
    memory: MemoryReport,
    device: String,
    cache: KvFormat,
    /// Memory of a GPU that was predicted, for models on disk.
    predicted_bytes: Option<u64>,
}

fn sweep(args: &BenchArgs) -> Sweep<'_> {
    Sweep {
        sizes: &args.batch,
        past_tokens: args.context as usize,
        steps: args.batch_steps as usize,
        repetitions: BATCH_REPETITIONS_MAX.min(args.repetitions as usize),
    }
}

/// Writes the synthetic model to `dir`.
fn write(args: &BenchArgs, preset: &str, dir: &Path) -> Result<()> {
    known_preset(preset)?;
    let started = Instant::now();
    let written = synthetic::write_preset(preset, synthetic_weights(args), dir)?;
    let seconds = started.elapsed().as_secs_f64();
    let rate = written.bytes as f64 / seconds.max(1e-9);
    if args.output.json {
        return output::print_json(&json!({
            "dir": dir,
            "files": written.files,
            "bytes": written.bytes,
            "seconds": seconds,
            "gb_s": rate / 1e9,
        }));
    }
    let (files, bytes) = (written.files, output::bytes(written.bytes));
    let speed = format!("{bytes} in {files} files, {seconds:.1} s, {:.2} GB/s", rate / 1e9);
    let lines = [("model", dir.display().to_string()), ("written", speed)];
    Ok(output::report(&output::facts(&lines))?)
}

fn load(args: &BenchArgs) -> Result<(Box<dyn Forward>, ModelFacts, LoadSpeed)> {
    let mut bar = LoadBar::new(args.output.json);
    let mut builder =
        args.model_flags.builder(args.model.as_deref().unwrap_or_default(), Math::Wide);
    if args.model_flags.cache_tokens.is_none() {
        let single = args.context as usize + args.new_tokens as usize + 1;
        let single = single.max(args.prompt_tokens as usize);
        let step_tokens = builder.load_options(builder.place()?).step_tokens_max;
        let batch = sweep(args).cache_tokens(step_tokens);
        builder = builder.cache_tokens(single.max(batch));
    }
    let predicted_bytes = predicted_bytes(args, &builder)?;
    let mut clock = LoadClock::start();
    let mut progress = |progress: &LoadProgress<'_>| {
        clock.update(progress);
        bar.update(progress)
    };
    let loaded = match &args.synthetic {
        Some(preset) => {
            known_preset(preset)?;
            builder.load_synthetic(preset, synthetic_weights(args), &mut progress)?
        }
        None => builder.load(&mut progress)?,
    };
    let LoadedModel { forward, memory, device, cache, .. } = loaded;
    Ok((forward, ModelFacts { memory, device, cache, predicted_bytes }, clock.stop()))
}

/// What a model on disk will take of a GPU.
fn predicted_bytes(args: &BenchArgs, builder: &EngineBuilder) -> Result<Option<u64>> {
    let place = builder.place()?;
    if args.model.is_none() || place == Place::Cpu {
        return Ok(None);
    }
    let dir = builder.dir()?;
    let spec = builder.spec(&dir)?;
    let need = builder.predict_memory(&dir, &spec, place)?;
    let cache = args.model_flags.cache_or(KvFormat::F16);
    Ok(Some(need.peak_bytes(cache, builder.cache_tokens_for(&spec))))
}

fn known_preset(preset: &str) -> Result<()> {
    if synthetic::preset_names().any(|name| name == preset) {
        return Ok(());
    }
    let names: Vec<&str> = synthetic::preset_names().collect();
    let names = names.join(", ");
    Err(Usage::error(format!("there is no shape {preset:?}: choose one of {names}")))
}

/// Refuses options that would have no effect.
fn check(args: &BenchArgs) -> Result<()> {
    if args.write.is_some() && args.synthetic.is_none() {
        return Err(Usage::error("--write belongs to --synthetic"));
    }
    let bits = args.bits.is_some() || args.head_bits.is_some();
    if args.synthetic.is_none() && (bits || args.weights.is_some()) {
        return Err(Usage::error("--weights, --bits and --head-bits belong to --synthetic"));
    }
    if bits && matches!(args.weights, Some(Weights::Gptq | Weights::F16)) {
        return Err(Usage::error("--bits and --head-bits belong to --weights exl2 or exl3"));
    }
    let whole = |bits: f32| bits.fract() == 0.0 && (1.0..=8.0).contains(&bits);
    if args.weights == Some(Weights::Exl3) && !args.bits.is_none_or(whole) {
        return Err(Usage::error("--bits of --weights exl3 are a whole number from 1 to 8"));
    }
    Ok(())
}

fn synthetic_weights(args: &BenchArgs) -> SyntheticWeights {
    match args.weights.unwrap_or(Weights::Exl2) {
        Weights::Exl2 => SyntheticWeights::Exl2 {
            bits: args.bits.unwrap_or(4.0),
            head_bits: args.head_bits.unwrap_or(6),
        },
        Weights::Exl3 => SyntheticWeights::Exl3 {
            bits: args.bits.unwrap_or(4.0) as u8,
            head_bits: args.head_bits.unwrap_or(6),
        },
        Weights::Gptq => SyntheticWeights::Gptq,
        Weights::F16 => SyntheticWeights::F16,
    }
}
