//! How fast this machine reads memory: the yardstick for decoding, which reads all weights once per
//! token.
//!
//! Threads sum up disjoint parts of a buffer that is much larger than the caches. Reading is what
//! decoding does, so reading is what is measured; the best of several passes counts, because
//! everything else on the machine can only slow a pass down.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::machine::{Machine, available_bytes};

/// The buffer is at least this many times the largest cache.
const CACHE_MULTIPLE: u64 = 8;
/// Smallest and largest buffer, in bytes.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = (256 << 20)..=(4 << 30);
/// Words that are summed side by side, so that additions never wait for each other.
const LANES: usize = 32;

/// A buffer to read.
pub struct Bandwidth {
    words: Vec<u64>,
    threads: usize,
}

impl Bandwidth {
    /// Allocates a buffer that fits the machine.
    pub fn new(machine: &Machine, threads: usize) -> Result<Self> {
        let cache = machine.last_cache_bytes.unwrap_or(32 << 20);
        let wanted = (cache * CACHE_MULTIPLE).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
        let bytes = wanted.min(available_bytes().map_or(wanted, |free| free / 4)).max(1 << 20);
        let n_words = (bytes / 8) as usize;
        let mut words = Vec::new();
        words.try_reserve_exact(n_words).context("not enough memory to measure its speed")?;
        // Written with different values, so that every page is really there.
        words.extend((0..n_words as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        Ok(Bandwidth { words, threads: threads.max(1) })
    }

    /// Bytes per second of the best of `passes` passes.
    pub fn measure(&self, passes: usize) -> f64 {
        let best = (0..passes.max(1)).map(|_| self.pass()).fold(f64::INFINITY, f64::min);
        (self.words.len() * 8) as f64 / best
    }

    /// Seconds of one pass.
    fn pass(&self) -> f64 {
        let share = self.words.len().div_ceil(self.threads);
        let started = Instant::now();
        let total = std::thread::scope(|scope| {
            let parts: Vec<_> =
                self.words.chunks(share).map(|part| scope.spawn(move || sum(part))).collect();
            // A part that cannot be joined counts as nothing; the time is what matters.
            parts.into_iter().fold(0u64, |all, part| all.wrapping_add(part.join().unwrap_or(0)))
        });
        std::hint::black_box(total);
        started.elapsed().as_secs_f64()
    }
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; LANES];
    for chunk in words.chunks_exact(LANES) {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |all, lane| all.wrapping_add(*lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_whatever_the_number_of_threads() {
        let words: Vec<u64> = (0..LANES as u64 * 100).collect();
        assert_eq!(sum(&words), words.iter().sum::<u64>());
        let bandwidth = Bandwidth { words, threads: 3 };
        assert!(bandwidth.measure(2) > 0.0);
    }
}
