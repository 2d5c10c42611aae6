//! `pagella diff`: how far a model is from another, such as a quantised copy from its source.
//!
//! `--json` prints `tokens`, `kl` and `kl_max` (nats), `top1` (share), `ppl` (both models) and `layers`
//! (relative error after each).

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use pagella::Device;
use pagella_arch::{SpecOptions, load_spec};
use pagella_quant::calibration::of_text;
use pagella_quant::diff::{Difference, diff, plot};
use serde_json::json;

use super::quantize::exact_cpu;
use crate::flags::OutputFlags;
use crate::output::{self, Table};

/// Steps of the bar.
const STEPS: u64 = 1000;

/// Compare two models on a text
///
/// B is held against A: divergence of its answers (KL, in nats per token), how often both find the same
/// token likeliest, both perplexities, and the relative error of the hidden states after every layer.
/// Both run exactly, layer by layer.
#[derive(Args)]
pub struct DiffArgs {
    /// The model to compare with: a directory, a hub id in the local cache, or demo
    a: String,
    /// The model to look at
    b: String,
    /// A text file, or .jsonl with `text` or `messages` [default: Pagella's documentation]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Most rows of text
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    rows: u32,
    /// Tokens per row
    #[arg(short, long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(32..=32768))]
    length: u32,
    /// Draw the errors of the layers into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Where to run: auto or cpu
    #[arg(long, value_name = "DEVICE", default_value = "auto", env = "PAGELLA_DEVICE")]
    device: Device,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), env = "PAGELLA_THREADS")]
    threads: Option<u16>,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &DiffArgs) -> Result<()> {
    let dirs = [pagella::resolve_model(&args.a)?, pagella::resolve_model(&args.b)?];
    let spec = |dir: &PathBuf| load_spec(dir, &SpecOptions::default());
    let specs = [spec(&dirs[0])?, spec(&dirs[1])?];
    let length = (args.length as usize).min(specs[0].context).min(specs[1].context);
    let rows = of_text(&dirs[0], args.text.as_deref(), args.rows as usize, length)?;
    let bar = if args.output.json { ProgressBar::hidden() } else { ProgressBar::new(STEPS) };
    if let Ok(style) = ProgressStyle::with_template("comparing {wide_bar} {percent:>3} %  +{eta}") {
        bar.set_style(style);
    }
    let threads = args.threads.map(usize::from);
    let backend = exact_cpu(args.device, args.threads)?;
    let dirs = [dirs[0].as_path(), dirs[1].as_path()];
    let found = diff(dirs, specs, &backend, &rows, threads, &mut |done| {
        bar.set_position((done * STEPS as f64) as u64);
    });
    bar.finish_and_clear();
    let found = found?;
    if let Some(path) = &args.svg {
        let picture = plot(&found, [&args.a, &args.b]);
        std::fs::write(path, picture)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.output.json {
        true => output::print_json(&json!({
            "tokens": found.tokens,
            "kl": found.divergence,
            "kl_max": found.divergence_max,
            "top1": found.agreement,
            "ppl": found.perplexities,
            "layers": found.layers,
        })),
        false => Ok(output::report(&text(&found))?),
    }
}

fn text(found: &Difference) -> String {
    let [a, b] = found.perplexities;
    let mut text = output::facts(&[
        ("tokens", found.tokens.to_string()),
        (
            "divergence",
            format!("{:.5} nats (at most {:.3})", found.divergence, found.divergence_max),
        ),
        ("same likeliest", format!("{:.2} %", 100.0 * found.agreement)),
        ("perplexity", format!("{a:.4} → {b:.4}")),
    ]);
    let mut table = Table::new(&["layer", "relative error"]);
    for (layer, error) in found.layers.iter().enumerate() {
        table.row(vec![layer.to_string(), format!("{error:.5}")]);
    }
    // Writing to a string does not fail.
    let _ = write!(text, "\n{}", table.render());
    text
}
