//! Bytes per second of the linear kernels, against plain reads in the same run.
//!
//! `cargo bench -p pagella-cpu --bench linear [-- THREADS]`. Compare numbers of one run only.

use std::time::Instant;

use pagella_backend::{Backend, LogitUse, Projection, StepPlan, StepRow};
use pagella_cpu::{CpuBackend, CpuOptions, Isa, MathMode};
use pagella_formats::synthetic;

/// Inputs and outputs of the measured linear.
const SHAPE: (usize, usize) = (2048, 8192);
/// Copies of it: together far larger than any cache.
const COPIES: usize = 12;

fn best_of(runs: usize, mut work: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

fn read_bandwidth(threads: usize) -> f64 {
    let buffers: Vec<Vec<u64>> = (0..threads).map(|_| vec![1u64; 16 << 20]).collect();
    let seconds = best_of(5, || {
        std::thread::scope(|scope| {
            for buffer in &buffers {
                scope.spawn(|| {
                    let sums = buffer.chunks_exact(8).fold([0u64; 8], |mut sums, chunk| {
                        sums.iter_mut().zip(chunk).for_each(|(s, x)| *s = s.wrapping_add(*x));
                        sums
                    });
                    std::hint::black_box(sums);
                });
            }
        });
    });
    (threads * (128 << 20)) as f64 / seconds / 1e9
}

fn main() {
    let arg = std::env::args().skip(1).find_map(|a| a.parse::<usize>().ok());
    let threads = arg.unwrap_or_else(|| pagella_cpu::usable_cpus().len());
    println!("plain read, {threads} threads: {:.1} GB/s", read_bandwidth(threads));
    println!("isa       math   bits  m     GB/s  GFLOP/s");
    let (k, n) = SHAPE;
    for isa in Isa::available().into_iter().filter(|isa| isa.name() != "portable") {
        for math in [MathMode::Exact, MathMode::Wide] {
            let options = CpuOptions { threads: Some(threads), math, isa: Some(isa), pin: true };
            let Ok(backend) = CpuBackend::new(options) else { continue };
            for bits in [2u8, 3, 4, 5, 6, 8] {
                let source = synthetic::exl2(k, n, &[(bits, 1.0, 64)], 1);
                let linears: Vec<_> =
                    (0..COPIES).filter_map(|_| backend.linear(&source.view()).ok()).collect();
                let bytes: usize = linears.iter().map(|l| backend.linear_bytes(l)).sum();
                for m in [1usize, 2, 4, 6, 12, 48, 192] {
                    let ids = vec![0; m];
                    let row = StepRow::new(&ids, 0, &[0], LogitUse::None);
                    let Ok(plan) = StepPlan::new(&[row]) else { continue };
                    let Ok(step) = backend.begin(&plan) else { continue };
                    let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 - 8.0).collect();
                    let Ok(x) = backend.write(m, k, &x) else { continue };
                    let Ok(mut out) = backend.tensor(m, n) else { continue };
                    let seconds = best_of(4, || {
                        for linear in &linears {
                            let projection = Projection { linear, out: &mut out };
                            let done = backend.project(&step, &x, None, &mut [projection]);
                            assert!(done.is_ok());
                        }
                    });
                    let flops = (2 * m * k * n * COPIES) as f64 / seconds / 1e9;
                    let rate = bytes as f64 / seconds / 1e9;
                    println!(
                        "{:<9} {:<6} {bits:<5} {m:<5} {rate:>5.1} {flops:>8.0}",
                        isa.name(),
                        math.name()
                    );
                }
            }
        }
    }
}
