//! Bytes per second of the linear kernels, against plain reads in the same run.
//!
//! ```text
//! cargo bench -p pagella-cpu --bench linear [-- THREADS [ISA [MATH [WEIGHTS [ROWS]]]]]
//! ```
//!
//! THREADS 0 is every core; ISA, MATH and WEIGHTS are names as printed, or `all`; ROWS such as `1,4,8`.
//! All settings take turns within a round and the median over the rounds is printed, so that numbers
//! of one run can be compared; numbers of two runs cannot.

use std::time::Instant;

use pagella_backend::{Backend, LogitUse, Projection, StepPlan, StepRow};
use pagella_cpu::{CpuBackend, CpuLinear, CpuOptions, Isa, MathMode};
use pagella_formats::synthetic::{self, IntegerForm, SmallFloatKind};
use pagella_formats::{Dtype, Linear, OwnedLinear};

/// Inputs and outputs of the measured linear.
const SHAPE: (usize, usize) = (2048, 8192);
/// Copies of it: together far larger than any cache.
const COPIES: usize = 12;
/// Turns of every setting.
const ROUNDS: usize = 7;
/// Token rows without a wish.
const ROWS: &str = "1,2,3,4,6,8,12,16,32,192";

fn read_bandwidth(threads: usize) -> f64 {
    let buffers: Vec<Vec<u64>> = (0..threads).map(|_| vec![1u64; 16 << 20]).collect();
    let once = || {
        let start = Instant::now();
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
        start.elapsed().as_secs_f64()
    };
    let seconds = median((0..ROUNDS).map(|_| once()).collect());
    (threads * (128 << 20)) as f64 / seconds / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Every way to store weights, by name.
fn weights() -> Vec<(String, OwnedLinear)> {
    let (k, n) = SHAPE;
    let mut all = Vec::new();
    for bits in [2u8, 3, 4, 5, 6, 8] {
        all.push((bits.to_string(), synthetic::exl2(k, n, &[(bits, 1.0, 128)], 1)));
    }
    all.push(("4/32".to_owned(), synthetic::exl2(k, n, &[(4, 1.0, 32)], 1)));
    all.push(("6/32".to_owned(), synthetic::exl2(k, n, &[(6, 1.0, 32)], 1)));
    let order = synthetic::RowOrder::Sequential;
    for (name, bits, rounded, single) in [
        ("gptq2", 2, false, false),
        ("gptq3", 3, false, false),
        ("gptq", 4, false, false),
        ("awq", 4, true, false),
        ("gptq8", 8, false, false),
        ("int8", 8, false, true),
    ] {
        let form = IntegerForm { bits, rounded, single };
        let group_rows = if single { k } else { 128 };
        all.push((name.to_owned(), synthetic::integer(k, n, group_rows, order, form, 1)));
    }
    for (name, kind) in [
        ("mxfp4", SmallFloatKind::Mxfp4),
        ("nvfp4", SmallFloatKind::Nvfp4),
        ("nf4", SmallFloatKind::Nf4),
        ("fp8", SmallFloatKind::Fp8),
    ] {
        all.push((name.to_owned(), synthetic::small_float(kind, k, n, 1)));
    }
    all.push(("f16".to_owned(), synthetic::plain_f16(k, n, 1)));
    all.push(("bf16".to_owned(), synthetic::plain_f16(k, n, 1)));
    all
}

/// The linear of that name; the bits of binary16 are ordinary numbers of bfloat16, too.
fn view<'a>(name: &str, source: &'a OwnedLinear) -> Linear<'a> {
    match source.view() {
        Linear::Plain(mut plain) if name == "bf16" => {
            plain.dtype = Dtype::BF16;
            Linear::Plain(plain)
        }
        other => other,
    }
}

/// One linear in one arithmetic.
struct Subject {
    isa: Isa,
    math: MathMode,
    backend: CpuBackend,
    linears: Vec<CpuLinear>,
    bytes: usize,
}

impl Subject {
    fn new(isa: Isa, math: MathMode, threads: usize, source: &Linear<'_>) -> Option<Self> {
        let options = CpuOptions { threads: Some(threads), math, isa: Some(isa), pin: true };
        let backend = CpuBackend::new(options).ok()?;
        let linear = |_| backend.linear(source).ok();
        let linears: Vec<_> = (0..COPIES).filter_map(linear).collect();
        let bytes = linears.iter().map(|l| backend.linear_bytes(l)).sum();
        Some(Subject { isa, math, backend, linears, bytes })
    }

    /// Seconds that all copies take for `m` token rows.
    fn seconds(&self, m: usize) -> Option<f64> {
        let (k, n) = SHAPE;
        let ids = vec![0; m];
        let row = StepRow::new(&ids, 0, &[0], LogitUse::None);
        let plan = StepPlan::new(&[row]).ok()?;
        let step = self.backend.begin(&plan).ok()?;
        let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 - 8.0).collect();
        let x = self.backend.write(m, k, &x).ok()?;
        let mut out = self.backend.tensor(m, n).ok()?;
        let start = Instant::now();
        for linear in &self.linears {
            let projection = Projection { linear, out: &mut out };
            self.backend.project(&step, &x, None, &mut [projection]).ok()?;
        }
        Some(start.elapsed().as_secs_f64())
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let wish = |i: usize| arguments.get(i).map(String::as_str).filter(|wish| *wish != "all");
    let threads = wish(0).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let threads = threads.unwrap_or_else(|| pagella_cpu::usable_cpus().len());
    let rows: Vec<usize> =
        wish(4).unwrap_or(ROWS).split(',').filter_map(|n| n.parse().ok()).collect();
    println!("plain read, {threads} threads: {:.1} GB/s", read_bandwidth(threads));
    println!("isa       math   bits  m     GB/s  GFLOP/s");
    for (name, source) in weights() {
        if wish(3).is_some_and(|wish| !wish.split(',').any(|w| w == name)) {
            continue;
        }
        let mut subjects = Vec::new();
        for isa in Isa::available().into_iter().filter(|isa| isa.name() != "portable") {
            for math in [MathMode::Exact, MathMode::Wide] {
                let wanted = wish(1).is_none_or(|wish| wish == isa.name())
                    && wish(2).is_none_or(|wish| wish == math.name());
                subjects.extend(
                    wanted
                        .then(|| Subject::new(isa, math, threads, &view(&name, &source)))
                        .flatten(),
                );
            }
        }
        let mut seconds = vec![Vec::new(); subjects.len() * rows.len()];
        for _ in 0..ROUNDS {
            let settings = subjects.iter().flat_map(|s| rows.iter().map(move |&m| (s, m)));
            for ((subject, m), seconds) in settings.zip(&mut seconds) {
                seconds.extend(subject.seconds(m));
            }
        }
        let settings = subjects.iter().flat_map(|s| rows.iter().map(move |&m| (s, m)));
        for ((subject, m), seconds) in settings.zip(seconds) {
            let seconds = median(seconds);
            let flops = (2 * m * SHAPE.0 * SHAPE.1 * COPIES) as f64 / seconds / 1e9;
            let rate = subject.bytes as f64 / seconds / 1e9;
            let (isa, math) = (subject.isa.name(), subject.math.name());
            println!("{isa:<9} {math:<6} {name:<5} {m:<5} {rate:>5.1} {flops:>8.0}");
        }
    }
}
