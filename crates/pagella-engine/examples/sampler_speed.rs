//! How long one choice takes: microseconds per row for several settings, best and median.
//!
//! ```text
//! cargo run --release -p pagella-engine --example sampler_speed [rows] [setting]
//! ```
//!
//! Two rows of 152,064 logits: one peaked as models write them, one flat. The time of copying a
//! fresh row is not counted. The last columns are choices from the best candidates of the peaked row,
//! as a device reports them, with the time of asking for them. With a setting's name only that one
//! runs, for instruction counts.

use std::sync::Arc;
use std::time::Instant;

use pagella_backend::{NarrowRow, narrow_plain};
use pagella_engine::sample::{
    AskBuffer, Asked, Narrowed, Row, SampleOptions, Sampler, SamplerState, Scratch, VocabSets,
    uniform,
};

const VOCAB: usize = 152_064;
const HISTORY: usize = 2_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(300);
    let only = arguments.next();
    let history: Vec<u32> =
        (0..HISTORY as u64).map(|i| (uniform(3, i) * VOCAB as f64) as u32).collect();
    let line = |name: &str, columns: [&str; 6]| {
        let [a, b, c, d, e, f] = columns;
        println!("{name:<26} {a:>9} {b:>9}   {c:>9} {d:>9}   {e:>9} {f:>9}");
    };
    line("µs per row", ["peaked", "", "flat", "", "narrowed", ""]);
    line("", ["best", "median", "best", "median", "best", "median"]);
    for (name, options) in settings() {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let peaked_row = row(2.5, 20.0);
        let peaked = measure(&options, &peaked_row, &history, rows);
        let flat = measure(&options, &row(1.5, 0.0), &history, rows);
        let narrowed = measure_narrowed(&options, &peaked_row, &history, rows);
        let times = [peaked, flat, narrowed].map(|(a, b)| [format!("{a:.1}"), format!("{b:.1}")]);
        let [[a, b], [c, d], [e, f]] = &times;
        line(name, [a, b, c, d, e, f]);
    }
}

/// ExLlamaV2's defaults, every step by itself, and steps behind each other.
fn settings() -> Vec<(&'static str, SampleOptions)> {
    let exl2 = SampleOptions::exl2_default();
    let neutral = SampleOptions::default();
    let (likely, late) = (0.95, true);
    vec![
        ("exl2_default", exl2.clone()),
        ("exl2_default, no top-k", SampleOptions { top_k: 0, ..exl2.clone() }),
        ("greedy", SampleOptions::greedy()),
        ("neutral", neutral.clone()),
        ("temperature 0.7", SampleOptions { temperature: 0.7, ..neutral.clone() }),
        ("penalties", SampleOptions { frequency_penalty: 0.5, ..neutral.clone() }),
        ("dry", SampleOptions { dry_multiplier: 0.8, ..neutral.clone() }),
        ("smoothing", SampleOptions { smoothing_factor: 0.3, ..neutral.clone() }),
        ("top-n-sigma 1", SampleOptions { top_n_sigma: 1.0, ..neutral.clone() }),
        ("top-k 50", SampleOptions { top_k: 50, ..neutral.clone() }),
        ("top-k 20,000", SampleOptions { top_k: 20_000, ..neutral.clone() }),
        ("top-p 0.95", SampleOptions { top_p: likely, ..neutral.clone() }),
        ("top-a 0.2", SampleOptions { top_a: 0.2, ..neutral.clone() }),
        ("min-p 0.05", SampleOptions { min_p: 0.05, ..neutral.clone() }),
        ("tfs 0.95", SampleOptions { tfs: likely, ..neutral.clone() }),
        ("typical 0.9", SampleOptions { typical: 0.9, ..neutral.clone() }),
        ("epsilon 3e-4", SampleOptions { epsilon_cutoff: 3e-4, ..neutral.clone() }),
        ("eta 3e-4", SampleOptions { eta_cutoff: 3e-4, ..neutral.clone() }),
        ("mirostat", SampleOptions { mirostat: true, ..neutral.clone() }),
        ("mirostat, tau 8", SampleOptions { mirostat: true, mirostat_tau: 8.0, ..neutral.clone() }),
        (
            "temperature 0.7 last",
            SampleOptions { temperature: 0.7, temperature_last: late, ..neutral.clone() },
        ),
        ("dynamic temperature", SampleOptions { min_temp: 0.5, max_temp: 1.5, ..neutral.clone() }),
        ("xtc 0.5", SampleOptions { xtc_probability: 0.5, ..neutral.clone() }),
        ("adaptive-p 0.4", SampleOptions { adaptive_target: 0.4, ..neutral.clone() }),
        ("skew 1", SampleOptions { skew: 1.0, ..neutral.clone() }),
        (
            "exl2_default, dry, xtc",
            SampleOptions { dry_multiplier: 0.8, xtc_probability: 0.5, ..exl2 },
        ),
        (
            "smoothing, min-p",
            SampleOptions { smoothing_factor: 0.3, min_p: 0.05, ..neutral.clone() },
        ),
        (
            "top-p, typical, late 0.7",
            SampleOptions {
                top_p: likely,
                typical: 0.9,
                temperature: 0.7,
                temperature_last: late,
                ..neutral.clone()
            },
        ),
        (
            "min-p 0.001, xtc, adaptive",
            SampleOptions { min_p: 0.001, xtc_probability: 0.5, adaptive_target: 0.4, ..neutral },
        ),
    ]
}

/// Normal logits of the given spread, of which twenty are raised by `likely` and less.
fn row(spread: f64, likely: f32) -> Vec<f32> {
    let mut row: Vec<f32> = (0..VOCAB as u64)
        .map(|i| {
            let (a, b) = (uniform(1, i).max(1e-12), uniform(2, i));
            (spread * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
        })
        .collect();
    for i in 0..20 {
        row[i * 7_001 + 13] += likely - i as f32;
    }
    row
}

/// Best and median microseconds of `Sampler::pick`.
fn measure(options: &SampleOptions, row: &[f32], history: &[u32], rows: usize) -> (f64, f64) {
    let sampler = match Sampler::new(options, Arc::new(VocabSets::plain(VOCAB))) {
        Ok(sampler) => sampler,
        Err(error) => return report(&error),
    };
    let mut state = SamplerState::new(options);
    let mut scratch = Scratch::new();
    let mut times = Vec::with_capacity(rows);
    let mut logits = row.to_vec();
    for attempt in 0..rows as u32 {
        logits.copy_from_slice(row);
        let row = Row {
            logits: &mut logits,
            history,
            prompt_len: 0,
            mask: None,
            denied: &[],
            attempt,
            top: 0,
        };
        let start = Instant::now();
        let choice = sampler.pick(&mut state, &mut scratch, row);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        if let Err(error) = std::hint::black_box(choice) {
            return report(&error);
        }
    }
    best_and_median(times)
}

fn best_and_median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2);
    (times.first().copied().unwrap_or(f64::NAN), median.copied().unwrap_or(f64::NAN))
}

/// Best and median microseconds of `Sampler::ask` and `Sampler::pick_narrowed` together; not a number
/// where the whole row is needed.
fn measure_narrowed(
    options: &SampleOptions,
    row: &[f32],
    history: &[u32],
    rows: usize,
) -> (f64, f64) {
    let sampler = match Sampler::new(options, Arc::new(VocabSets::plain(VOCAB))) {
        Ok(sampler) => sampler,
        Err(error) => return report(&error),
    };
    let mut state = SamplerState::new(options);
    let (mut scratch, mut buffer) = (Scratch::new(), AskBuffer::default());
    let mut known = NarrowRow::default();
    let mut times = Vec::with_capacity(rows);
    for attempt in 0..rows as u32 {
        let asked = Asked { vocab: VOCAB, history, prompt_len: 0, mask: None, denied: &[], top: 0 };
        let start = Instant::now();
        let Some(ask) = sampler.ask(&asked, &mut scratch, &mut buffer) else { continue };
        let asking = start.elapsed();
        if attempt == 0 {
            narrow_plain(row, &ask, &mut known);
        }
        let narrowed = Narrowed {
            known: &known,
            ask: &buffer,
            vocab: VOCAB,
            history,
            prompt_len: 0,
            denied: &[],
            attempt,
            top: 0,
        };
        let start = Instant::now();
        let choice = sampler.pick_narrowed(&mut state, &mut scratch, narrowed);
        let picking = start.elapsed();
        if let Ok(Some(_)) = std::hint::black_box(choice) {
            times.push((asking + picking).as_secs_f64() * 1e6);
        }
    }
    best_and_median(times)
}

fn report(error: &dyn std::error::Error) -> (f64, f64) {
    eprintln!("{error}");
    (f64::NAN, f64::NAN)
}
