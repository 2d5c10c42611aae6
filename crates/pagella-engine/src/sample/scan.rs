//! One look at a row: its highest logit, and the highest of every chunk of 64.
//!
//! The chunks let later passes skip most of the row: nothing above a threshold is in a chunk whose
//! maximum is below it. And the k-th highest chunk maximum is a lower bound for the k-th highest
//! logit, because k chunks hold at least one logit of that height each.

use pagella_backend::isa::{self, Kernel};

use super::Scratch;

/// Logits per chunk. A quarter kibibyte: four cache lines, sixteen 128-bit vectors.
pub const CHUNK: usize = 64;
/// Lanes of the vector loops.
const LANES: usize = 16;

/// How many entries are NaN.
pub fn count_nan(logits: &[f32]) -> usize {
    isa::run(CountNan(logits))
}

struct CountNan<'a>(&'a [f32]);

impl Kernel for CountNan<'_> {
    type Out = usize;

    #[inline(always)]
    fn run(self) -> usize {
        // A sum is NaN if a part of it is, and costs less than counting; infinities may make one, too.
        let (parts, rest) = self.0.as_chunks::<LANES>();
        let mut lanes = [0f32; LANES];
        for part in parts {
            lanes.iter_mut().zip(part).for_each(|(sum, x)| *sum += x * 0.0);
        }
        if lanes.iter().chain(rest).all(|x| (x * 0.0) == 0.0) {
            return 0;
        }
        self.0.iter().filter(|x| x.is_nan()).count()
    }
}

/// Fills `scratch.chunk_max` and returns the row's maximum; −∞ for an empty or fully masked row.
/// The row is free of NaN.
pub fn maxima(logits: &[f32], scratch: &mut Scratch) -> f32 {
    scratch.chunk_max.clear();
    isa::run(Maxima { logits, chunk_max: &mut scratch.chunk_max })
}

struct Maxima<'a> {
    logits: &'a [f32],
    chunk_max: &'a mut Vec<f32>,
}

impl Kernel for Maxima<'_> {
    type Out = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        self.chunk_max.reserve(self.logits.len().div_ceil(CHUNK));
        for chunk in self.logits.chunks(CHUNK) {
            self.chunk_max.push(max_of(chunk));
        }
        max_of(self.chunk_max)
    }
}

#[inline(always)]
fn max_of(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (parts, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(max, &x)| *max = larger(*max, x));
    }
    // In pairs: one after the other takes as long as all that came before.
    let (low, high) = lanes.split_at(8);
    let mut eight = [f32::NEG_INFINITY; 8];
    eight.iter_mut().zip(low.iter().zip(high)).for_each(|(m, (&a, &b))| *m = larger(a, b));
    let [a, b, c, d, e, f, g, h] = eight;
    let all = larger(larger(larger(a, e), larger(b, f)), larger(larger(c, g), larger(d, h)));
    rest.iter().fold(all, |max, &x| larger(max, x))
}

/// The lowest finite logit; +∞ if there is none.
pub fn lowest_finite(logits: &[f32]) -> f32 {
    isa::run(LowestFinite(logits))
}

struct LowestFinite<'a>(&'a [f32]);

impl Kernel for LowestFinite<'_> {
    type Out = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        let finite = |x: f32| if x == f32::NEG_INFINITY { f32::INFINITY } else { x };
        let lower = |a: f32, b: f32| if b < a { b } else { a };
        let (parts, rest) = self.0.as_chunks::<LANES>();
        let mut lanes = [f32::INFINITY; LANES];
        for part in parts {
            lanes.iter_mut().zip(part).for_each(|(min, &x)| *min = lower(*min, finite(x)));
        }
        lanes.iter().chain(rest).fold(f32::INFINITY, |min, &x| lower(min, finite(x)))
    }
}

/// The lowest id whose logit is `max`, the row's maximum.
pub fn first_of(logits: &[f32], scratch: &Scratch, max: f32) -> u32 {
    let chunk = scratch.chunk_max.iter().position(|m| *m == max).unwrap_or(0);
    let start = chunk * CHUNK;
    let within = logits.iter().skip(start).position(|l| *l == max).unwrap_or(0);
    (start + within) as u32
}

/// A value that at least `n` logits reach; −∞ when that asks for all of them.
pub fn reached_by(n: usize, scratch: &mut Scratch) -> f32 {
    if n == 0 || n > scratch.chunk_max.len() {
        return f32::NEG_INFINITY;
    }
    scratch.chunk_order.clear();
    scratch.chunk_order.extend_from_slice(&scratch.chunk_max);
    let (_, nth, _) = scratch.chunk_order.select_nth_unstable_by(n - 1, |a, b| b.total_cmp(a));
    *nth
}

/// Calls `each` with the start and the logits of every chunk that may hold one `≥ threshold`.
pub fn chunks_reaching<'a>(
    logits: &'a [f32],
    chunk_max: &'a [f32],
    threshold: f32,
) -> impl Iterator<Item = (usize, &'a [f32])> {
    let chunks = logits.chunks(CHUNK).zip(chunk_max).enumerate();
    chunks.filter(move |(_, (_, max))| **max >= threshold).map(|(i, (c, _))| (i * CHUNK, c))
}

/// Whether more than `n` logits are at least `threshold`.
pub fn more_reach(logits: &[f32], chunk_max: &[f32], threshold: f32, n: usize) -> bool {
    let mut count = 0;
    for (_, chunk) in chunks_reaching(logits, chunk_max, threshold) {
        count += chunk.iter().map(|l| u32::from(*l >= threshold)).sum::<u32>() as usize;
        if count > n {
            return true;
        }
    }
    false
}

/// The sum of all weights, chunk by chunk in f32, over chunks in f64.
#[inline(always)]
pub fn sum(weights: &[f32]) -> f64 {
    let mut sum = 0.0;
    for chunk in weights.chunks(CHUNK) {
        sum += f64::from(sum_chunk(chunk));
    }
    sum
}

/// The sum of one chunk.
#[inline(always)]
pub fn sum_chunk(weights: &[f32]) -> f32 {
    let (parts, rest) = weights.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, w)| *lane += w);
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}
