//! `pagella quantize`: an unquantised model to EXL2.
//!
//! `--json` prints `models` (a list of `dir`, `bits`, `layer_bits`, `head_bits`, `total_bits`, `bytes`,
//! `expected`, `bound`, `starved`), `rows` and `length` of calibration, and `seconds`.

mod progress;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use pagella::Device;
use pagella_arch::{RopeOverride, SpecOptions};
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_quant::calibration::CalibrationOptions;
use pagella_quant::{QuantizeOptions, quantize};

use crate::flags::OutputFlags;
use crate::output;
use crate::usage::Usage;
use progress::Watcher;

/// Quantise a model to EXL2
///
/// Reads float16, bfloat16 or float32 weights and writes a model that Pagella and ExLlamaV2 load. Without
/// --calibration it is calibrated with what the model itself writes and with Pagella's documentation.
/// Work that was stopped, in whatever way, goes on when the same command is given again, from the folder
/// DST.quantize, and gives the same files.
#[derive(Args)]
pub struct QuantizeArgs {
    /// Unquantised model: a directory, or a hub id in the local cache
    source: String,
    /// Folder for the quantised model, new or empty; with several rates a folder for 2.5bpw, 4.0bpw, …
    target: Option<PathBuf>,
    /// Average bits per weight of the layers; several, separated by commas, are made from one measurement
    #[arg(short, long, value_name = "BITS", value_delimiter = ',', default_value = "4.0", value_parser = rate)]
    bits: Vec<f64>,
    /// Bits of the output head: 2, 3, 4, 5, 6 or 8 [default: chosen with all others, within the size that
    /// 6 would give]
    #[arg(long, value_name = "N", value_parser = head_bits)]
    head_bits: Option<u32>,
    /// Calibration text: .txt, .jsonl with `text` or `messages`, or .parquet with a column `text`
    #[arg(short, long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Most rows of calibration [default: 32, or more where linears are wide]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    rows: Option<u32>,
    /// Tokens per row
    #[arg(short, long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(32..=8192))]
    length: u32,
    /// Use this measurement, of this program or of ExLlamaV2, instead of measuring
    #[arg(short, long, value_name = "FILE", conflicts_with = "output_measurement")]
    measurement: Option<PathBuf>,
    /// Write the measurement here; without DST, end there
    #[arg(long, value_name = "FILE")]
    output_measurement: Option<PathBuf>,
    /// Most MiB of a file of weights
    #[arg(long, value_name = "MIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    shard_size: u64,
    /// Divide positions by this factor (linear scaling)
    #[arg(long, value_name = "F", group = "rope")]
    rope_scale: Option<f32>,
    /// Raise the rotary base by this alpha (NTK scaling)
    #[arg(long, value_name = "A", group = "rope")]
    rope_alpha: Option<f32>,
    /// Keep hidden states on disk, and calibrate without what the model itself writes, for which all of
    /// it would have to be in memory
    #[arg(long)]
    low_memory: bool,
    /// Throw away unfinished work instead of going on with it
    #[arg(long)]
    no_resume: bool,
    /// Seed of what the model writes for calibration
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Where to run: auto or cpu
    #[arg(long, value_name = "DEVICE", default_value = "auto", env = "PAGELLA_DEVICE")]
    device: Device,
    /// Threads; the result does not depend on them [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), env = "PAGELLA_THREADS")]
    threads: Option<u16>,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &QuantizeArgs) -> Result<()> {
    let start = Instant::now();
    let source = pagella::resolve_model(&args.source)?;
    let options = options(args, source)?;
    let watcher = Watcher::new(args.output.json)?;
    let outcome = quantize(&options, exact_cpu(args.device, args.threads)?, &mut |progress| {
        watcher.update(progress)
    });
    watcher.clear();
    let seconds = start.elapsed().as_secs_f64();
    let outcome = outcome?;
    match args.output.json {
        true => output::print_json(&report::json(&outcome, seconds)),
        false => Ok(output::report(&report::text(&outcome, seconds))?),
    }
}

/// The CPU with exact arithmetic, the only place where models are quantised and compared so far.
pub(super) fn exact_cpu(device: Device, threads: Option<u16>) -> Result<CpuBackend> {
    if let Device::Cuda(_) = device {
        return Err(Usage::error(format!(
            "{device} cannot be used here yet: models are quantised and compared on the CPU; leave out --device"
        )));
    }
    let threads = threads.map(usize::from);
    // Others compute between its steps, on the same cores.
    Ok(CpuBackend::new(CpuOptions { threads, pin: false, ..CpuOptions::default() })?)
}

fn options(args: &QuantizeArgs, source: PathBuf) -> Result<QuantizeOptions> {
    let rope = match (args.rope_scale, args.rope_alpha) {
        (Some(scale), _) => Some(RopeOverride::Linear(scale)),
        (_, Some(alpha)) => Some(RopeOverride::NtkAlpha(alpha)),
        _ => None,
    };
    let (target, rates) = match (&args.target, &args.output_measurement) {
        (Some(target), _) => (target.clone(), args.bits.clone()),
        (None, Some(path)) => (path.clone(), Vec::new()),
        (None, None) => {
            return Err(Usage::error("give DST, or --output-measurement to only measure"));
        }
    };
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    if sorted.len() != rates.len() {
        return Err(Usage::error("--bits names a rate twice: give each once"));
    }
    Ok(QuantizeOptions {
        source,
        target,
        rates,
        head_bits: args.head_bits,
        measurement: args.measurement.clone(),
        output_measurement: args.output_measurement.clone(),
        shard_bytes: args.shard_size << 20,
        calibration: CalibrationOptions {
            file: args.calibration.clone(),
            rows: args.rows.map(|rows| rows as usize),
            length: args.length as usize,
            seed: args.seed,
            low_memory: args.low_memory,
        },
        spec: SpecOptions { rope, ..SpecOptions::default() },
        resume: !args.no_resume,
        threads: args.threads.map(usize::from),
    })
}

/// Bits per weight; how many can be reached depends on the model.
fn rate(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits: &f64| bits.is_finite());
    bits.ok_or_else(|| "give a number of bits such as 4.0".to_owned())
}

/// Widths that the head has presets for.
fn head_bits(text: &str) -> Result<u32, String> {
    let bits = text.parse().ok().filter(|bits| pagella_quant::head_params(*bits).is_ok());
    bits.ok_or_else(|| "2, 3, 4, 5, 6 or 8 are possible".to_owned())
}
