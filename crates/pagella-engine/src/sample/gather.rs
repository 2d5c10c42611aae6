//! From a row of logits to weights: only of those that the first shortening step can keep.
//!
//! What is left out is less likely than everything that is in, and is known not to matter, so the
//! steps give the same result as on the whole row. Thresholds are taken a little low; [`cut`] decides
//! exactly.
//!
//! [`cut`]: super::cut

use std::cmp::Ordering;

use super::cut::Reach;
use super::scan;
use super::{Candidate, Scratch, Shape};

/// Weights `exp(…)` in the place of probabilities, the highest being 1, in no particular order.
#[derive(Debug)]
pub struct Weights {
    /// What the step can keep, and maybe more; every weight is above 0.
    pub list: Vec<Candidate>,
    /// The sum over the whole row; `None` where it is not needed, or the list is the whole row.
    pub total: Option<f64>,
}

/// A row that entered the softmax: free of NaN, with a finite maximum.
#[derive(Clone, Copy, Debug)]
pub struct Softmax<'a> {
    /// Logits; −∞ for masked ids.
    pub logits: &'a [f32],
    /// The highest of them.
    pub max: f32,
    /// What the distance from it is worth.
    pub shape: Shape,
}

/// A guard for sums in f32; see the precision stated in [`super`].
const SUM_MARGIN: f64 = 1e-5;
/// Logits whose weights are summed while they are in the first-level cache.
const PART: usize = 16 * scan::CHUNK;
/// Halvings of the distance in which the threshold for a mass is searched.
const MASS_HALVINGS: usize = 6;

impl Softmax<'_> {
    /// Sum of the weights over the row, relative to the maximum. Fills `scratch.weights`.
    pub fn total(&self, scratch: &mut Scratch) -> f64 {
        scratch.weights.resize(self.logits.len(), 0.0);
        let parts = self.logits.chunks(PART).zip(scratch.weights.chunks_mut(PART));
        parts
            .map(|(logits, weights)| {
                self.shape.weights(logits, self.max, weights);
                scan::sum(weights)
            })
            .sum()
    }

    /// What `reach` asks for and at least the `at_least` most likely. Empty only for a row without
    /// finite logits. `scratch.chunk_max` belongs to this row.
    pub fn gather(&self, reach: Reach, at_least: usize, scratch: &mut Scratch) -> Weights {
        let (threshold, total) = match reach {
            Reach::Count(n) => {
                self.find_most_likely(n.max(at_least), scratch);
                return Weights { list: self.weigh(scratch), total: None };
            }
            Reach::All => (f32::MIN, None),
            Reach::Share(share) => (self.threshold(share), None),
            Reach::Probability(p) => {
                let total = self.total(scratch);
                (self.threshold(p * total), Some(total))
            }
            Reach::SquareOfMax(factor) => {
                let total = self.total(scratch);
                (self.threshold(factor / total), Some(total))
            }
            Reach::Mass(p) | Reach::Draw(p) => {
                let total = self.total(scratch);
                match self.mass_threshold(p, total, scratch) {
                    Some(threshold) => (threshold, Some(total)),
                    None => (f32::MIN, None),
                }
            }
        };
        let floor = scan::reached_by(at_least, scratch).max(f32::MIN);
        self.find(threshold.min(floor), scratch);
        Weights { list: self.weigh(scratch), total }
    }

    fn find_most_likely(&self, n: usize, scratch: &mut Scratch) {
        let threshold = scan::reached_by(n, scratch).max(f32::MIN);
        self.find(threshold, scratch);
        if n < scratch.found.len() {
            scratch.found.select_nth_unstable_by(n, higher_logit);
            scratch.found.truncate(n);
        }
    }

    /// The logit at which a weight falls below `weight`, with a margin for rounding.
    fn threshold(&self, weight: f64) -> f32 {
        let deepest = f64::from(self.max) - f64::from(f32::MIN);
        let depth = self.shape.depth(weight.min(1.0).ln(), deepest);
        let margin = 1e-6 * (f64::from(self.max).abs() - depth + 1.0);
        ((f64::from(self.max) + depth - margin) as f32).max(f32::MIN)
    }

    /// A logit such that those at or above it have at least the probability `p`; `None` when that
    /// may take all of them.
    fn mass_threshold(&self, p: f64, total: f64, scratch: &Scratch) -> Option<f32> {
        let wanted = p * total + SUM_MARGIN * total;
        let to_spare = total - wanted;
        if to_spare <= 0.0 {
            return None;
        }
        // Even if every id lay right below this depth, together they would not be missed.
        let mut enough = self.threshold(to_spare / self.logits.len() as f64);
        let mut short = self.max;
        for _ in 0..MASS_HALVINGS {
            let middle = (short + 0.5 * (enough - short)).max(f32::MIN);
            let mass =
                scan::sum_reaching(self.logits, &scratch.weights, &scratch.chunk_max, middle);
            *(if mass >= wanted { &mut enough } else { &mut short }) = middle;
        }
        Some(enough)
    }

    fn find(&self, threshold: f32, scratch: &mut Scratch) {
        scratch.found.clear();
        for (start, chunk) in scan::chunks_reaching(self.logits, &scratch.chunk_max, threshold) {
            let ids = (start as u32)..;
            let reaching = chunk.iter().zip(ids).filter(|(l, _)| **l >= threshold);
            scratch.found.extend(reaching.map(|(&l, id)| (l, id)));
        }
    }

    fn weigh(&self, scratch: &mut Scratch) -> Vec<Candidate> {
        let mut list = std::mem::take(&mut scratch.list);
        weigh(self.shape, self.max, &scratch.found, &mut list);
        list
    }
}

/// Replaces `list` by the weights of logits; ids whose weight vanishes are left out.
pub fn weigh(shape: Shape, max: f32, logits: &[(f32, u32)], list: &mut Vec<Candidate>) {
    let max = f64::from(max);
    let weight = |&(l, id): &(f32, u32)| {
        let p = shape.log_weight(f64::from(l) - max).exp();
        Candidate { id, p }
    };
    list.clear();
    list.extend(logits.iter().map(weight).filter(|c| c.p > 0.0));
}

/// Highest logit first, lowest id first among equals. None is NaN, and the two zeros are equal.
pub fn higher_logit(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1))
}
