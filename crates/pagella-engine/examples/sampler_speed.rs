//! How long one choice takes: microseconds per row for several settings, best and median.
//!
//! ```text
//! cargo run --release -p pagella-engine --example sampler_speed [rows] [setting]
//! ```
//!
//! Two rows of 152,064 logits: one peaked as models write them, one flat. The time of copying a
//! fresh row is not counted. With a setting's name only that one runs, for instruction counts.

use std::sync::Arc;
use std::time::Instant;

use pagella_engine::sample::{
    Row, SampleOptions, Sampler, SamplerState, Scratch, VocabSets, uniform,
};

const VOCAB: usize = 152_064;
const HISTORY: usize = 2_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(300);
    let only = arguments.next();
    let history: Vec<u32> =
        (0..HISTORY as u64).map(|i| (uniform(3, i) * VOCAB as f64) as u32).collect();
    println!("{:<26} {:>9} {:>9}   {:>9} {:>9}", "µs per row", "peaked", "", "flat", "");
    println!("{:<26} {:>9} {:>9}   {:>9} {:>9}", "", "best", "median", "best", "median");
    for (name, options) in settings() {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let [peaked, flat] = [(2.5, 20.0), (1.5, 0.0)]
            .map(|(spread, likely)| measure(&options, &row(spread, likely), &history, rows));
        println!(
            "{name:<26} {:>9.1} {:>9.1}   {:>9.1} {:>9.1}",
            peaked.0, peaked.1, flat.0, flat.1
        );
    }
}

fn settings() -> Vec<(&'static str, SampleOptions)> {
    let exl2 = SampleOptions::exl2_default();
    let neutral = SampleOptions::default();
    vec![
        ("exl2_default", exl2.clone()),
        ("exl2_default, no top-k", SampleOptions { top_k: 0, ..exl2.clone() }),
        ("greedy", SampleOptions::greedy()),
        ("neutral", neutral.clone()),
        ("min-p 0.05", SampleOptions { min_p: 0.05, ..neutral.clone() }),
        ("top-p 0.95", SampleOptions { top_p: 0.95, ..neutral.clone() }),
        ("mirostat", SampleOptions { mirostat: true, ..neutral.clone() }),
        (
            "exl2_default, dry, xtc",
            SampleOptions { dry_multiplier: 0.8, xtc_probability: 0.5, ..exl2 },
        ),
        (
            "smoothing, min-p",
            SampleOptions { smoothing_factor: 0.3, min_p: 0.05, ..neutral.clone() },
        ),
        ("typical 0.9", SampleOptions { typical: 0.9, ..neutral }),
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
    times.sort_by(f64::total_cmp);
    (times.first().copied().unwrap_or(f64::NAN), times.get(rows / 2).copied().unwrap_or(f64::NAN))
}

fn report(error: &dyn std::error::Error) -> (f64, f64) {
    eprintln!("{error}");
    (f64::NAN, f64::NAN)
}
