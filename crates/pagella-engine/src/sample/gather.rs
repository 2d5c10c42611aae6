//! From a row of logits to weights: only of those that the first shortening step can keep.
//!
//! What is left out is less likely than everything that is in, and is known not to matter, so the
//! steps give the same result as on the whole row. Thresholds are taken a little low; [`cut`] decides
//! exactly. Where the step may keep more than a list should hold, the row stays as it is, in buckets.
//!
//! [`cut`]: super::cut

use std::cmp::Ordering;

use super::candidates::IN_ORDER_LEN;
use super::cut::Reach;
use super::scan;
use super::spread::{LIST_LEN, Spread};
use super::{Candidate, Scratch, Shape};

/// Weights `exp(…)` in the place of probabilities, the highest being 1, in no particular order.
#[derive(Debug)]
pub struct Weights {
    /// What the step can keep, and maybe more; every weight is above 0.
    pub list: Vec<Candidate>,
    /// The sum over the whole row; `None` where it is not needed, or the list is the whole row.
    pub total: Option<f64>,
}

/// What the first step behind the softmax can keep of a row.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack for one choice")]
pub enum Gathered<'a> {
    /// That, and maybe more.
    Few(Weights),
    /// Exactly that; the step has been applied, if it cuts.
    Many(Spread<'a>),
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

impl<'a> Softmax<'a> {
    /// Sum of the weights over the row, relative to the maximum.
    pub fn total(&self, scratch: &mut Scratch) -> f64 {
        let mut spread = self.spread(scratch);
        let total = spread.total();
        scratch.spread = spread.into_buffers();
        total
    }

    /// What `reach` asks for and at least the `at_least` most likely; `min_keep` of them stay in any
    /// case. Empty only for a row without finite logits. `scratch.chunk_max` belongs to this row.
    pub fn gather(
        &self,
        reach: Reach,
        at_least: usize,
        min_keep: usize,
        scratch: &mut Scratch,
    ) -> Gathered<'a> {
        match reach {
            Reach::Count(n) if n.max(at_least) > LIST_LEN => {
                let mut spread = self.spread(scratch);
                spread.keep(n.max(min_keep));
                Gathered::Many(spread)
            }
            Reach::Count(n) => {
                let list = self.most_likely(n.max(at_least), scratch);
                Gathered::Few(Weights { list, total: None })
            }
            Reach::All => self.reaching(f32::MIN, None, at_least, scratch, |_| {}),
            Reach::Share(share) => {
                let threshold = self.threshold(share);
                self.reaching(threshold, None, at_least, scratch, |spread| {
                    spread.keep_heavy(share, min_keep);
                })
            }
            Reach::Probability(p) => {
                let total = self.total(scratch);
                let threshold = self.threshold(p * total);
                self.reaching(threshold, Some(total), at_least, scratch, |spread| {
                    spread.keep_reaching(p, min_keep);
                })
            }
            Reach::SquareOfMax(factor) => {
                let total = self.total(scratch);
                let threshold = self.threshold(factor / total);
                self.reaching(threshold, Some(total), at_least, scratch, |spread| {
                    spread.keep_heavy(factor / total, min_keep);
                })
            }
            Reach::Mass(p) => {
                let cut = |spread: &mut Spread<'a>| spread.keep_until(min_keep, |sum| sum >= p);
                self.until(p, at_least, scratch, cut)
            }
            Reach::Draw(r) => self.until(r, at_least, scratch, |_| {}),
        }
    }

    /// The logits from a threshold on, if they fit a list.
    fn reaching(
        &self,
        threshold: f32,
        total: Option<f64>,
        at_least: usize,
        scratch: &mut Scratch,
        cut: impl FnOnce(&mut Spread<'a>),
    ) -> Gathered<'a> {
        let floor = scan::reached_by(at_least, scratch).max(f32::MIN);
        let threshold = threshold.min(floor);
        if scan::more_reach(self.logits, &scratch.chunk_max, threshold, LIST_LEN) {
            let mut spread = self.spread(scratch);
            cut(&mut spread);
            return Gathered::Many(spread);
        }
        self.find(threshold, scratch);
        Gathered::Few(Weights { list: self.weigh(scratch), total })
    }

    /// The most likely that have this share of the mass, if they fit a list.
    fn until(
        &self,
        share: f64,
        at_least: usize,
        scratch: &mut Scratch,
        cut: impl FnOnce(&mut Spread<'a>),
    ) -> Gathered<'a> {
        let floor = scan::reached_by(at_least, scratch).max(f32::MIN);
        let mut spread = self.spread(scratch);
        let crossing = spread.bucket_until(share).max(spread.bucket_of(floor));
        if spread.count_before(crossing) > IN_ORDER_LEN {
            cut(&mut spread);
            return Gathered::Many(spread);
        }
        let (total, list) = (spread.total(), spread.members_until(crossing + 1));
        scratch.spread = spread.into_buffers();
        Gathered::Few(Weights { list, total: Some(total) })
    }

    fn spread(&self, scratch: &mut Scratch) -> Spread<'a> {
        Spread::new(self.logits, self.max, self.shape, scratch)
    }

    /// The weights of the `n` highest logits.
    pub fn most_likely(&self, n: usize, scratch: &mut Scratch) -> Vec<Candidate> {
        let threshold = scan::reached_by(n, scratch).max(f32::MIN);
        self.find(threshold, scratch);
        if n < scratch.found.len() {
            scratch.found.select_nth_unstable_by(n, higher_logit);
            scratch.found.truncate(n);
        }
        self.weigh(scratch)
    }

    /// The logit at which a weight falls below `weight`, with a margin for rounding.
    fn threshold(&self, weight: f64) -> f32 {
        let deepest = f64::from(self.max) - f64::from(f32::MIN);
        let depth = self.shape.depth(weight.min(1.0).ln(), deepest);
        let margin = 1e-6 * (f64::from(self.max).abs() - depth + 1.0);
        ((f64::from(self.max) + depth - margin) as f32).max(f32::MIN)
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
