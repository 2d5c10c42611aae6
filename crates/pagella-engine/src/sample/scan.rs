//! One look at a row: its highest logit, and the highest of every chunk of 64.
//!
//! The chunks let later passes skip most of the row: nothing above a threshold is in a chunk whose
//! maximum is below it. And the k-th highest chunk maximum is a lower bound for the k-th highest
//! logit, because k chunks hold at least one logit of that height each.

use super::Scratch;

/// Logits per chunk. A quarter kibibyte: four cache lines, sixteen 128-bit vectors.
pub const CHUNK: usize = 64;
/// Lanes of the vector loops.
const LANES: usize = 16;

/// How many entries are NaN.
pub fn count_nan(logits: &[f32]) -> usize {
    let (parts, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [0u32; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(n, x)| *n += u32::from(x.is_nan()));
    }
    lanes.iter().map(|n| *n as usize).sum::<usize>() + rest.iter().filter(|x| x.is_nan()).count()
}

/// Fills `scratch.chunk_max` and returns the row's maximum; −∞ for an empty or fully masked row.
/// The row is free of NaN.
pub fn maxima(logits: &[f32], scratch: &mut Scratch) -> f32 {
    scratch.chunk_max.clear();
    scratch.chunk_max.extend(logits.chunks(CHUNK).map(max_of));
    max_of(&scratch.chunk_max)
}

fn max_of(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (parts, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(max, &x)| *max = larger(*max, x));
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &x| larger(max, x))
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

/// The sum of all weights, chunk by chunk in f32, over chunks in f64.
pub fn sum(weights: &[f32]) -> f64 {
    weights.chunks(CHUNK).map(|chunk| f64::from(lane_sum(chunk, |w, _| w, chunk))).sum()
}

/// The sum of the weights whose logit is at least `threshold`.
pub fn sum_reaching(logits: &[f32], weights: &[f32], chunk_max: &[f32], threshold: f32) -> f64 {
    let keep = |w: f32, l: f32| if l >= threshold { w } else { 0.0 };
    chunks_reaching(logits, chunk_max, threshold)
        .map(|(start, chunk)| {
            let weights = &weights[start..start + chunk.len()];
            f64::from(lane_sum(weights, keep, chunk))
        })
        .sum()
}

#[inline(always)]
fn lane_sum(weights: &[f32], value: impl Fn(f32, f32) -> f32, logits: &[f32]) -> f32 {
    let (parts, rest) = weights.as_chunks::<LANES>();
    let (logit_parts, logit_rest) = logits.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for (part, logit_part) in parts.iter().zip(logit_parts) {
        for (lane, (&w, &l)) in lanes.iter_mut().zip(part.iter().zip(logit_part)) {
            *lane += value(w, l);
        }
    }
    let rest: f32 = rest.iter().zip(logit_rest).map(|(&w, &l)| value(w, l)).sum();
    lanes.iter().sum::<f32>() + rest
}
