//! Microseconds of attention for a few new tokens after many, with every kind of cache, and the ratio
//! to a 16-bit one.
//!
//! `cargo bench -p pagella-cpu --bench attention [-- THREADS [ISA [TOKENS [HEAD_DIM]]]]`. All settings
//! take turns within a round; medians over the rounds are printed. Compare numbers of one run only.

use std::error::Error;
use std::time::Instant;

use pagella_backend::{
    AttentionOp, Backend, KvFormat, KvLayer, KvSpec, LogitUse, PAGE_TOKENS, StepPlan, StepRow,
};
use pagella_cpu::{CpuBackend, CpuOptions, Isa, MathMode};

/// Query heads and key/value heads.
const HEADS: (usize, usize) = (32, 8);
/// Layers: together far larger than any cache.
const LAYERS: usize = 16;
/// Turns of every setting.
const ROUNDS: usize = 7;
const FORMATS: [KvFormat; 4] = [KvFormat::F16, KvFormat::Q8, KvFormat::K8V4, KvFormat::Q4];

/// One cache, filled.
struct Subject {
    format: KvFormat,
    kv: <CpuBackend as Backend>::Kv,
    seconds: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize| arguments.get(i).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let threads = number(0).unwrap_or_else(|| pagella_cpu::usable_cpus().len());
    let (tokens, head_dim) = (number(2).unwrap_or(4096), number(3).unwrap_or(64));
    for isa in Isa::available().into_iter().filter(|isa| isa.name() != "portable") {
        if arguments.get(1).is_some_and(|wish| wish != "all" && wish != isa.name()) {
            continue;
        }
        let math = MathMode::Exact;
        let options = CpuOptions { threads: Some(threads), math, isa: Some(isa), pin: true };
        measure(&CpuBackend::new(options)?, isa, tokens, head_dim)?;
    }
    Ok(())
}

fn op(layer: usize, head_dim: usize) -> AttentionOp {
    AttentionOp::plain(layer, HEADS.0, HEADS.1, head_dim)
}

fn measure(
    backend: &CpuBackend,
    isa: Isa,
    tokens: usize,
    head_dim: usize,
) -> Result<(), Box<dyn Error>> {
    let values = |n: usize, seed: usize| -> Vec<f32> {
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    };
    let pages: Vec<u32> = (0..(tokens + 8).div_ceil(PAGE_TOKENS) as u32).collect();
    let spec = |format| KvSpec {
        layers: vec![KvLayer::plain(HEADS.1, head_dim); LAYERS],
        format,
        pages: pages.len(),
    };
    let mut subjects = Vec::new();
    for format in FORMATS {
        let mut kv = backend.kv(&spec(format))?;
        for first in (0..tokens).step_by(PAGE_TOKENS) {
            let ids = vec![0; PAGE_TOKENS.min(tokens - first)];
            let n = ids.len();
            let seen = &pages[..(first + n).div_ceil(PAGE_TOKENS)];
            let plan = StepPlan::new(&[StepRow::new(&ids, first, seen, LogitUse::None)])?;
            let step = backend.begin(&plan)?;
            let width = HEADS.1 * head_dim;
            for layer in 0..LAYERS {
                let mut q =
                    backend.write(n, HEADS.0 * head_dim, &values(n * HEADS.0 * head_dim, 1))?;
                let mut k = backend.write(n, width, &values(n * width, first + layer))?;
                let mut v = backend.write(n, width, &values(n * width, first + layer + 9))?;
                let op = op(layer, head_dim);
                backend.append(&step, &op, None, None, &mut q, &mut k, &mut v, &mut kv)?;
            }
        }
        subjects.push(Subject { format, kv, seconds: Vec::new() });
    }
    for new in [1, 4] {
        let ids = vec![0; new];
        let seen = &pages[..tokens.div_ceil(PAGE_TOKENS)];
        let plan = StepPlan::new(&[StepRow::new(&ids, tokens - new, seen, LogitUse::None)])?;
        let step = backend.begin(&plan)?;
        let q = backend.write(new, HEADS.0 * head_dim, &values(new * HEADS.0 * head_dim, 3))?;
        let mut out = backend.tensor(new, HEADS.0 * head_dim)?;
        subjects.iter_mut().for_each(|subject| subject.seconds.clear());
        for _ in 0..ROUNDS {
            for subject in &mut subjects {
                let start = Instant::now();
                for layer in 0..LAYERS {
                    backend.attend(&step, &op(layer, head_dim), None, &q, &subject.kv, &mut out)?;
                }
                subject.seconds.push(start.elapsed().as_secs_f64());
            }
        }
        let medians: Vec<f64> = subjects.iter().map(|s| median(s.seconds.clone())).collect();
        for (subject, seconds) in subjects.iter().zip(&medians) {
            let ratios = subjects[0].seconds.iter().zip(&subject.seconds).map(|(a, b)| a / b);
            println!(
                "{:<8} {new} new after {tokens}: {:<5} {:>8.0} µs a layer, speed {:.2} of 16 bits",
                isa.name(),
                subject.format.name(),
                seconds * 1e6 / LAYERS as f64,
                median(ratios.collect()),
            );
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
