//! How far apart two models are on a text: their answers, and their hidden states layer by layer.
//!
//! Both run side by side, one layer of each in memory at a time, with exact arithmetic.

mod plot;

use std::path::Path;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, LogitUse};
use rayon::prelude::*;

use crate::calibration::Rows;
use crate::error::QuantError;
use crate::layer::{Machine, Replaced, row_plan};

pub use plot::plot;

/// Tokens whose logits are computed at once.
const HEAD_TOKENS: usize = 256;

/// What the comparison found. The first model is what the second is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Tokens whose answers were compared.
    pub tokens: usize,
    /// Mean `KL(first ‖ second)` per token, in nats.
    pub divergence: f64,
    /// The largest of a token.
    pub divergence_max: f64,
    /// Share of tokens for which both find the same id likeliest.
    pub agreement: f64,
    /// Perplexities of the text, the first model's first.
    pub perplexities: [f64; 2],
    /// Per layer, how far its output is from that of the first model: `‖b − a‖ / ‖a‖`, mean over texts.
    pub layers: Vec<f64>,
}

/// What one token says.
struct Compared {
    divergence: f64,
    agrees: bool,
    /// Log-probabilities of the next id.
    next: Option<[f64; 2]>,
}

/// Compares two models on rows of one length.
pub fn diff<B: Backend + Clone>(
    dirs: [&Path; 2],
    specs: [ModelSpec; 2],
    backend: &B,
    rows: &Rows,
    threads: Option<usize>,
    tick: &mut (dyn FnMut(f64) + Send),
) -> Result<Difference, QuantError> {
    let shape = |spec: &ModelSpec| (spec.vocab, spec.layers.len(), spec.hidden);
    let [a, b] = specs;
    if shape(&a) != shape(&b) {
        let of = |(vocab, layers, hidden)| {
            format!("{layers} layers of width {hidden} and a vocabulary of {vocab}")
        };
        return Err(QuantError::OtherShape { first: of(shape(&a)), second: of(shape(&b)) });
    }
    let open = |dir, spec| Machine::open(dir, spec, backend.clone(), rows.length());
    let machines = [open(dirs[0], a)?, open(dirs[1], b)?];
    let pool = crate::threads::pool(threads, dirs[0])?;
    pool.install(|| run(&machines, rows, tick))
}

fn run<B: Backend + Clone>(
    machines: &[Machine<B>; 2],
    rows: &Rows,
    tick: &mut (dyn FnMut(f64) + Send),
) -> Result<Difference, QuantError> {
    let n_layers = machines[0].spec().layers.len();
    let mut states = [Vec::new(), Vec::new()];
    for (machine, states) in machines.iter().zip(&mut states) {
        let mut part = machine.walk.embedding()?;
        for row in 0..rows.count() {
            let mut row_states = Vec::new();
            part.run(&row_plan(rows, row, LogitUse::None)?, &mut row_states)?;
            states.push(row_states);
        }
    }
    let mut layers = Vec::with_capacity(n_layers);
    for layer in 0..n_layers {
        tick(layer as f64 / (n_layers + 1) as f64);
        for (machine, states) in machines.iter().zip(&mut states) {
            let mut part = machine.layer(layer, rows.length(), &Replaced::default(), &|_| false)?;
            for (row, states) in states.iter_mut().enumerate() {
                part.run(&row_plan(rows, row, LogitUse::None)?, states)?;
                check(states, machine, || format!("after layer {layer}"))?;
            }
        }
        let errors = states[0].iter().zip(&states[1]).map(|(a, b)| relative_error(a, b));
        layers.push(errors.sum::<f64>() / rows.count().max(1) as f64);
    }
    tick(n_layers as f64 / (n_layers + 1) as f64);
    let compared = compare_answers(machines, rows, &states)?;
    tick(1.0);
    Ok(summary(&compared, layers))
}

/// Refuses to compare what is not a number, which would pass for agreement.
fn check<B: Backend + Clone>(
    values: &[f32],
    machine: &Machine<B>,
    place: impl Fn() -> String,
) -> Result<(), QuantError> {
    if values.iter().all(|value| value.is_finite()) {
        return Ok(());
    }
    let dir = machine.walk.checkpoint().source().to_owned();
    Err(QuantError::NotFinite { dir, place: place() })
}

/// Runs both heads on all rows.
fn compare_answers<B: Backend + Clone>(
    machines: &[Machine<B>; 2],
    rows: &Rows,
    states: &[Vec<Vec<f32>>; 2],
) -> Result<Vec<Compared>, QuantError> {
    let [mut a, mut b] = [
        machines[0].head(&Replaced::default(), false)?,
        machines[1].head(&Replaced::default(), false)?,
    ];
    let (hidden, vocab) = (machines[0].spec().hidden, machines[0].spec().vocab);
    let mut compared = Vec::with_capacity(rows.count() * rows.length());
    let [mut expected, mut found] = [Vec::new(), Vec::new()];
    for row in 0..rows.count() {
        for first in (0..rows.length()).step_by(HEAD_TOKENS) {
            let last = rows.length().min(first + HEAD_TOKENS);
            // A head looks at no other token: its rows may be any.
            let piece = rows.piece(row, first..last);
            let plan = row_plan(&piece, 0, LogitUse::Score { choice: false })?;
            let of = |states: &[Vec<f32>]| states[row][first * hidden..last * hidden].to_vec();
            a.run(&plan, &mut of(&states[0]))?;
            a.read_logits(&mut expected)?;
            b.run(&plan, &mut of(&states[1]))?;
            b.read_logits(&mut found)?;
            check(&expected, &machines[0], || "in its answers".to_owned())?;
            check(&found, &machines[1], || "in its answers".to_owned())?;
            let next = |at: usize| rows.row(row).get(first + at + 1).copied();
            let pairs = expected.par_chunks_exact(vocab).zip(found.par_chunks_exact(vocab));
            let tokens = pairs.enumerate().map(|(at, (a, b))| compare(a, b, next(at)));
            compared.append(&mut tokens.collect::<Vec<_>>());
        }
    }
    Ok(compared)
}

fn compare(a: &[f32], b: &[f32], next: Option<u32>) -> Compared {
    let (norm_a, norm_b) = (log_sum_exp(a), log_sum_exp(b));
    let term = |(x, y): (&f32, &f32)| {
        let log = f64::from(*x) - norm_a;
        log.exp() * (log - (f64::from(*y) - norm_b))
    };
    let of_next = |id: u32| {
        let (x, y) = (a.get(id as usize)?, b.get(id as usize)?);
        Some([f64::from(*x) - norm_a, f64::from(*y) - norm_b])
    };
    Compared {
        divergence: a.iter().zip(b).map(term).sum::<f64>().max(0.0),
        agrees: likeliest(a) == likeliest(b),
        next: next.and_then(of_next),
    }
}

fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    f64::from(largest) + sum.ln()
}

fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x).powi(2);
    let error: f64 = a.iter().zip(b).map(|(a, b)| square(b - a)).sum();
    let size: f64 = a.iter().map(|a| square(*a)).sum();
    if size > 0.0 { (error / size).sqrt() } else { 0.0 }
}

fn summary(compared: &[Compared], layers: Vec<f64>) -> Difference {
    let n = compared.len().max(1) as f64;
    let known: Vec<[f64; 2]> = compared.iter().filter_map(|token| token.next).collect();
    let perplexity = |model: usize| {
        let sum: f64 = known.iter().map(|log| log[model]).sum();
        (-sum / known.len().max(1) as f64).exp()
    };
    Difference {
        tokens: compared.len(),
        divergence: compared.iter().map(|token| token.divergence).sum::<f64>() / n,
        divergence_max: compared.iter().map(|token| token.divergence).fold(0.0, f64::max),
        agreement: compared.iter().filter(|token| token.agrees).count() as f64 / n,
        perplexities: [perplexity(0), perplexity(1)],
        layers,
    }
}
