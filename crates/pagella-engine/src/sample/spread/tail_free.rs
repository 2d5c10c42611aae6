//! Tail-free sampling of many candidates: where the curve of probabilities has lost its curvature.
//!
//! Curvature is a sum over neighbours in the order of all candidates. What lies below a probability `p`
//! has less than `2p` of it together, so the likely candidates mostly decide alone. Where they do not,
//! logits are sorted, without ids: the cut is a number of candidates.

use super::{BUCKETS, LIST_LEN, Spread};
use crate::sample::candidates::canonical;
use crate::sample::sorted::Sorted;
use crate::sample::steps::tfs::{Head, HeadCut, TAIL_BELOW};
use crate::sample::{Candidate, Shape, scan};

/// Shares of the highest weight down to which candidates are tried, one after the other.
const DEPTHS: [f64; 2] = [1e-3, 1e-6];
/// The first of the sorted logits, where neighbours are far apart, have weights in f64.
const EXACT_LEN: usize = 1024;

impl Spread<'_> {
    /// Keeps the head that has the share `z` of all curvature; whether it could.
    pub fn keep_tail_free(&mut self, z: f64, min_keep: usize) -> bool {
        if !self.is_plain() {
            return false;
        }
        self.fill();
        let least = TAIL_BELOW * self.total;
        let Some(distance) = self.nearest() else { return false };
        let heaviest = self.worth.of_distance(distance);
        for depth in DEPTHS {
            let end = (self.bucket_of_weight(heaviest * depth) + 1).min(BUCKETS as u32);
            if self.count(0..end) > 2 * LIST_LEN {
                break;
            }
            let mut likely = self.members(0..end);
            likely.sort_unstable_by(canonical);
            let weights: Vec<f64> = likely.iter().map(|c| c.p).collect();
            let is_complete = end >= self.span().end;
            match (Head { weights: &weights, is_complete, least }).cut(z) {
                HeadCut::Unknown => continue,
                HeadCut::Nowhere => {}
                HeadCut::After(n) => match likely.get(..n.max(min_keep)) {
                    Some(kept) => self.keep_first(kept),
                    None => self.keep(n.max(min_keep)),
                },
            }
            return true;
        }
        self.keep_tail_free_sorted(z, least, min_keep);
        true
    }

    /// Keeps the most likely, which are these.
    fn keep_first(&mut self, kept: &[Candidate]) {
        let Some(last) = kept.last() else { return };
        let bucket = self.grid.of(self.logits[last.id as usize]);
        let is_in = |c: &&Candidate| self.grid.of(self.logits[c.id as usize]) == bucket;
        let within = kept.iter().rev().take_while(is_in).count();
        self.cut_behind(bucket, &kept[kept.len() - within..]);
    }

    /// The same by the logits of all members that have at least some weight.
    fn keep_tail_free_sorted(&mut self, z: f64, least: f64, min_keep: usize) {
        let mut sorted = std::mem::take(&mut self.buffers.sorted);
        self.sort(least, &mut sorted);
        if let Some(n) = self.count_with_curvature(&mut sorted, z) {
            self.keep_of_sorted(n.max(min_keep), &sorted.logits);
        }
        self.buffers.sorted = sorted;
    }

    /// Keeps the `n` most likely; the logits are those of the likely members.
    fn keep_of_sorted(&mut self, n: usize, sorted: &[f32]) {
        let Some(last) = n.checked_sub(1).and_then(|at| sorted.get(at)) else {
            return self.keep(n);
        };
        let bucket = self.grid.of(*last);
        let before = sorted.partition_point(|l| self.grid.of(*l) < bucket);
        let mut entries = self.members(bucket..bucket + 1);
        entries.sort_unstable_by(canonical);
        entries.truncate(n - before);
        self.cut_behind(bucket, &entries);
    }

    /// The logits of members of at least this weight, highest first.
    fn sort(&self, least: f64, sorted: &mut Sorted) {
        // One bucket more, for what rounding does to borders.
        let end = self.whole.end.min(self.bucket_of_weight(least) + 2);
        let (low, high) = self.grid.bounds(&(self.whole.start..end));
        match low <= high {
            // The last bucket has no end, and these are to be spread over many.
            true => sorted.sort(self.logits, low.max(self.lowest), high),
            false => sorted.logits.clear(),
        }
        let logits = &mut sorted.logits;
        if !self.own.is_empty() {
            logits.extend(self.own.iter().map(|own| self.logits[own.candidate.id as usize]));
            // Two runs, which this merges.
            logits.sort_by(|a, b| b.total_cmp(a));
        }
        let light = logits.iter().rev().take_while(|l| self.worth.of(**l) < least).count();
        logits.truncate(logits.len() - light);
    }

    /// How many candidates have the share `z` of the curvature; `None` if nothing is to be cut.
    fn count_with_curvature(&self, sorted: &mut Sorted, z: f64) -> Option<usize> {
        let len = sorted.logits.len();
        let exact = match self.worth.shape {
            Shape::Linear { .. } => EXACT_LEN.min(len),
            Shape::Smooth { .. } => len,
        };
        let weights: Vec<f64> = sorted.logits[..exact].iter().map(|l| self.worth.of(*l)).collect();
        let first: Vec<f64> = weights.windows(3).map(curvature).collect();
        // Two logits before those that follow: a window has three.
        sorted.bend(if exact < len { exact.saturating_sub(2) } else { len }, &self.worth);
        let of_first: f64 = first.iter().sum();
        let total = of_first + scan::sum(&sorted.bends);
        if len < 3 || total <= 0.0 {
            return None;
        }
        let limit = z * total;
        let mut sum = 0.0;
        let mut crosses = |bend: f64| {
            sum += bend;
            sum > limit
        };
        if let Some(at) = first.iter().position(|bend| crosses(*bend)) {
            return Some(at + 1);
        }
        let mut before = of_first;
        let mut passed = first.len();
        for bends in sorted.bends.chunks(scan::CHUNK) {
            let more = scan::sum(bends);
            if before + more > limit {
                let mut sum = before;
                let crosses = |bend: &f32| {
                    sum += f64::from(*bend);
                    sum > limit
                };
                return Some(passed + bends.iter().position(crosses).unwrap_or(bends.len()) + 1);
            }
            before += more;
            passed += bends.len();
        }
        Some(passed + 1)
    }
}

fn curvature(weights: &[f64]) -> f64 {
    match weights {
        [a, b, c] => (a - 2.0 * b + c).abs(),
        _ => 0.0,
    }
}
