//! Rows with known results: values published with the methods, and distributions computed by a
//! separate program in double precision.

use serde::Deserialize;

use super::*;
use crate::sample::steps::{dry, mirostat, skew};

#[derive(Deserialize)]
struct Published {
    rows: Vec<PublishedRow>,
    penalties: Vec<PublishedPenalty>,
    dry: PublishedDry,
    skew: Vec<(f32, f64, f64)>,
    mirostat: PublishedMirostat,
    mt19937: Vec<(u64, Vec<f64>)>,
}

#[derive(Deserialize)]
struct PublishedRow {
    name: String,
    options: SampleOptions,
    #[serde(default)]
    logits: Vec<f32>,
    #[serde(default)]
    probabilities: Vec<f64>,
    expected: Vec<f64>,
}

#[derive(Deserialize)]
struct PublishedPenalty {
    name: String,
    options: SampleOptions,
    logits: Vec<f32>,
    history: Vec<u32>,
    divisors: Vec<f32>,
}

#[derive(Deserialize)]
struct PublishedDry {
    multiplier: f32,
    allowed_length: usize,
    penalties: Vec<(usize, f64)>,
}

#[derive(Deserialize)]
struct PublishedMirostat {
    tau: f32,
    eta: f32,
    mu: f64,
    p: f64,
    next: f64,
}

/// A row of `rows.json`.
#[derive(Deserialize)]
pub struct ExactRow {
    pub options: SampleOptions,
    pub logits: Vec<f32>,
    pub history: Vec<u32>,
    pub expected: Vec<(u32, f64)>,
}

fn published() -> Published {
    let text = include_str!("../../../../../testdata/sampling/published.json");
    serde_json::from_str(text).unwrap()
}

/// The distributions computed in double precision.
pub fn exact_rows() -> Vec<ExactRow> {
    serde_json::from_str(include_str!("../../../../../testdata/sampling/rows.json")).unwrap()
}

#[test]
fn published_rows_have_their_published_distributions() {
    for case in published().rows {
        let logits =
            if case.logits.is_empty() { logits_of(&case.probabilities) } else { case.logits };
        let mut found = vec![0.0; logits.len()];
        for (id, p) in distribution(&case.options, &logits, &[]) {
            found[id as usize] = f64::from(p);
        }
        for (found, expected) in found.iter().zip(&case.expected) {
            assert!((found - expected).abs() < 1e-6, "{}: {found} {expected}", case.name);
        }
    }
}

#[test]
fn published_penalties_divide_by_their_published_numbers() {
    for case in published().penalties {
        let found = processed(&case.options, &case.logits, &case.history);
        for ((found, logit), divisor) in found.iter().zip(&case.logits).zip(&case.divisors) {
            assert_eq!(*found, logit / divisor, "{}", case.name);
        }
    }
}

#[test]
fn published_formulas_have_their_published_values() {
    let data = published();
    let defaults = SampleOptions::default();
    for (length, penalty) in data.dry.penalties {
        let dry = dry::Dry {
            multiplier: data.dry.multiplier,
            base: defaults.dry_base,
            allowed_length: data.dry.allowed_length,
            max_ngram: defaults.dry_max_ngram,
            range: defaults.dry_range,
            count_scaling: defaults.dry_count_scaling,
        };
        let found = if length < dry.allowed_length { 0.0 } else { dry.penalty(length, 1) };
        assert!((found - penalty).abs() < 5e-3, "{length}: {found} {penalty}");
    }
    for (strength, r, expected) in data.skew {
        assert!((skew::apply(strength, r) - expected).abs() < 1e-6);
    }
    let m = data.mirostat;
    assert!((mirostat::update(m.mu, m.tau, m.eta, m.p) - m.next).abs() < 1e-6);
    for (seed, expected) in data.mt19937 {
        let mut generator = Mt19937::new(seed);
        for value in expected {
            assert!((generator.draw() - value).abs() < 1e-10, "seed {seed}");
        }
    }
}

#[test]
fn every_setting_gives_the_exact_distribution() {
    let rows = exact_rows();
    assert!(rows.len() >= 60);
    for case in rows {
        let found = distribution(&case.options, &case.logits, &case.history);
        let ids = |list: &[(u32, f64)]| list.iter().map(|c| c.0).collect::<Vec<_>>();
        let wide: Vec<(u32, f64)> = found.iter().map(|&(id, p)| (id, f64::from(p))).collect();
        assert_eq!(ids(&wide), ids(&case.expected), "{:?}", case.options);
        for ((id, p), (_, expected)) in wide.iter().zip(&case.expected) {
            assert!((p - expected).abs() < 1e-6, "{id}: {p} {expected} {:?}", case.options);
        }
    }
}
