//! A choice from the best candidates of a row instead of the whole row, or the insight that they do
//! not decide it.
//!
//! What is known: every id set apart with its logit, and the highest of all others. An id that is
//! not known is below the lowest of these, the floor. What is chosen is the id that the whole row
//! gives, for these reasons:
//!
//! - weights of known ids are the same numbers as on the whole row;
//! - the first cut is taken only if it lies above the floor and would be the same for every sum over
//!   the row that is possible ([`SUM_MARGIN`]);
//! - what is left is then the same list in the same order, so all later steps do the same.

use pagella_backend::NarrowRow;

use super::ask::AskBuffer;
use super::probabilities::Kept;
use super::{Choice, Sampler};
use crate::sample::candidates::{IN_ORDER_LEN, canonical};
use crate::sample::cut::Reach;
use crate::sample::gather::{higher_logit, weigh};
use crate::sample::steps::mask;
use crate::sample::{Candidate, Candidates, SampleError, SamplerState, Scratch, Shape, scan};

/// How far the sum over a row as the sampler takes it, in f32, may be from what is known of it.
///
/// The sampler's own sum: an exponent `x` is rounded three times, which changes its weight by at
/// most `3u·|x|` with `u = 2^-24`; weighted by probability, `|x|` is at most the entropy, hence below
/// ln 2^19 = 13.2. The exponential adds 2e-7, sums of up to 20 terms after each other 20u. Together
/// below 4e-6. (Smoothing rounds eight times, below 8e-6, but then every id is known.) A device's
/// mass is within 4e-6 ([`pagella_backend::NARROW_MASS_ERROR`]).
const SUM_MARGIN: f64 = 1e-5;
/// More than sums and exponentials in f64 can be apart.
const F64_MARGIN: f64 = 1e-12;

/// What a choice is made from; see [`Row`](crate::sample::Row).
#[derive(Clone, Copy, Debug)]
pub struct Narrowed<'a> {
    /// The answer of the device.
    pub known: &'a NarrowRow,
    /// The ask it belongs to.
    pub ask: &'a AskBuffer,
    /// Length of the row.
    pub vocab: usize,
    /// Prompt and output.
    pub history: &'a [u32],
    /// How many ids of the history are the prompt.
    pub prompt_len: usize,
    /// Ids that may not be chosen here.
    pub denied: &'a [u32],
    /// How often this position was tried before.
    pub attempt: u32,
    /// How many of the final candidates to report.
    pub top: usize,
}

/// The sum over the row is within these.
#[derive(Clone, Copy, Debug)]
struct Total {
    middle: f64,
    low: f64,
    high: f64,
}

/// Weights of the most likely ids, in canonical order.
struct Likely<'a> {
    list: &'a [Candidate],
    /// So many are above everything that is not known.
    clear: usize,
    /// Nothing is unknown.
    complete: bool,
}

impl Sampler {
    /// Chooses the id that [`Sampler::pick`] would choose from the whole row, with the mask of the ask;
    /// `None`, and nothing has happened, if only that can tell.
    ///
    /// Probabilities are those of the whole row, except that without any cut they are within 1e-5 of
    /// them. The share of denied ids is not computed and given as 0.
    pub fn pick_narrowed(
        &self,
        state: &mut SamplerState,
        scratch: &mut Scratch,
        row: Narrowed<'_>,
    ) -> Result<Option<Choice>, SampleError> {
        if row.known.nan > 0 {
            return Ok(None);
        }
        self.find_known(&row, scratch);
        let mut drawn = state.clone();
        let draws = self.draw(&mut drawn, row.history.len(), row.attempt);
        let Some(&(max, first)) = scratch.found.first() else {
            *state = drawn;
            let (position, vocab) = (row.history.len(), row.vocab);
            return Err(SampleError::NoCandidates { position, vocab });
        };
        if max == f32::INFINITY || self.is_greedy() {
            *state = drawn;
            let top = if row.top > 0 { vec![(first, 1.0)] } else { Vec::new() };
            return Ok(Some(Choice { id: first, p: 1.0, top, denied_share: 0.0 }));
        }
        let reach = self.reach(draws, state);
        let Some((candidates, several)) = self.narrowed_candidates(&row, reach, max, scratch)
        else {
            return Ok(None);
        };
        *state = drawn;
        Ok(self.choose(Kept::Few(candidates), several, row.top, draws, state, scratch))
    }

    /// Fills `scratch.found` with the known ids that may be chosen, highest logit first, down to
    /// the floor.
    fn find_known(&self, row: &Narrowed<'_>, scratch: &mut Scratch) {
        let apart = &row.ask.apart;
        let mut changed = std::mem::take(&mut scratch.sparse);
        if !apart.is_empty() {
            // A row that is true at the ids set apart only, which are all that steps change.
            changed.resize(row.vocab, 0.0);
            apart.iter().zip(&row.known.apart).for_each(|(id, l)| changed[*id as usize] = *l);
            self.change_logits(row.history, row.prompt_len, &mut changed, scratch);
            mask::deny(&self.never, &mut changed);
            mask::deny(row.denied, &mut changed);
        }
        let found = &mut scratch.found;
        found.clear();
        found.extend(row.known.top.iter().map(|&(id, l)| (l, id)));
        let floor = found.last().copied().filter(|_| !row.is_complete());
        let own = apart.iter().map(|&id| (changed[id as usize], id));
        let own = own.filter(|entry| entry.0 > f32::NEG_INFINITY);
        match floor {
            Some(floor) => found.extend(own.filter(|entry| higher_logit(entry, &floor).is_lt())),
            None => found.extend(own),
        }
        // Stable, because that is quick where most are in order already.
        found.sort_by(higher_logit);
        scratch.sparse = changed;
    }

    /// The softmax and its first step, and whether there were several candidates before that; `None`
    /// if it takes the whole row.
    fn narrowed_candidates(
        &self,
        row: &Narrowed<'_>,
        reach: Reach,
        max: f32,
        scratch: &mut Scratch,
    ) -> Option<(Candidates, bool)> {
        let shape = self.shape();
        let complete = row.is_complete();
        let mut list = std::mem::take(&mut scratch.list);
        if let Reach::Count(n) = reach {
            if !complete && n > scratch.found.len() {
                return None;
            }
            // Chosen by logit, as on the whole row.
            weigh(shape, max, &scratch.found[..n.min(scratch.found.len())], &mut list);
            let several = list.len() > 1;
            return Some((Candidates::most_likely(list, n)?, several));
        }
        weigh(shape, max, &scratch.found, &mut list);
        // An id without weight is none, and so are all below it.
        let complete = complete || list.len() < scratch.found.len();
        let floor = list.last().map_or(0.0, |c| c.p * (1.0 + F64_MARGIN));
        list.sort_unstable_by(canonical);
        let clear = if complete { list.len() } else { list.partition_point(|c| c.p > floor) };
        let several = list.len() > 1;
        let likely = Likely { list: &list, clear, complete };
        let total = self.narrowed_total(row, &likely, shape, max, scratch);
        if let Reach::Draw(r) = reach {
            let total = total?;
            let n = likely.until(r, total, |sum, r| sum > r)?;
            (complete || n.max(row.top) <= clear).then_some(())?;
            list.truncate(clear);
            return Some((Candidates::part_of(list, total.middle)?, several));
        }
        let n = likely.kept(reach, self.options.min_keep.max(1), total)?;
        (n <= IN_ORDER_LEN).then_some(())?;
        Some((Candidates::most_likely(list, n)?, several))
    }

    /// The sum of the weights over the whole row, as far as it is known.
    fn narrowed_total(
        &self,
        row: &Narrowed<'_>,
        likely: &Likely<'_>,
        shape: Shape,
        max: f32,
        scratch: &mut Scratch,
    ) -> Option<Total> {
        let middle: f64 = match row.known.top.first() {
            _ if likely.complete => likely.list.iter().map(|c| c.p).sum(),
            Some(&(_, highest)) if row.known.mass > 0.0 => {
                // The mass is relative to the highest of the ids that are not set apart.
                let scale = shape.log_weight(f64::from(highest) - f64::from(max)).exp();
                row.known.mass * scale + sum_apart(row, shape, max, scratch)
            }
            _ => return None,
        };
        let (low, high) = (middle * (1.0 - SUM_MARGIN), middle * (1.0 + SUM_MARGIN));
        Some(Total { middle, low, high })
    }
}

/// The weights of the ids set apart, as the steps left them.
fn sum_apart(row: &Narrowed<'_>, shape: Shape, max: f32, scratch: &mut Scratch) -> f64 {
    let Scratch { sparse, chunk_order: logits, weights, .. } = scratch;
    logits.clear();
    let changed = row.ask.apart.iter().map(|id| sparse[*id as usize]);
    logits.extend(changed.filter(|l| *l > f32::NEG_INFINITY));
    weights.resize(logits.len(), 0.0);
    shape.weights(logits, max, weights);
    scan::sum(weights)
}

impl Narrowed<'_> {
    /// Whether every id that may be chosen is known.
    fn is_complete(&self) -> bool {
        self.known.open == self.known.top.len()
    }
}

impl Likely<'_> {
    /// How many the first step keeps; `None` if the possible sums or the ids that are not known give
    /// more than one answer.
    fn kept(&self, reach: Reach, min_keep: usize, total: Option<Total>) -> Option<usize> {
        let (least, most) = match reach {
            Reach::Share(share) => (share, share),
            Reach::Probability(p) => (p * total?.low, p * total?.high),
            Reach::SquareOfMax(factor) => (factor / total?.high, factor / total?.low),
            Reach::Mass(p) => {
                let n = self.until(p, total?, |sum, p| sum >= p)?.max(min_keep);
                return self.within(n);
            }
            Reach::All | Reach::Count(_) | Reach::Draw(_) => {
                return self.complete.then_some(self.list.len());
            }
        };
        let reaching = |limit: f64| self.list[..self.clear].partition_point(|c| c.p >= limit);
        let (n, fewer) = (reaching(least), reaching(most));
        // The last that is clear does not reach, so nothing that is not known does.
        let decided = self.complete || n < self.clear;
        (decided && n.max(min_keep) == fewer.max(min_keep)).then_some(())?;
        self.within(n.max(min_keep))
    }

    /// `n`, if so many are known to be the most likely.
    fn within(&self, n: usize) -> Option<usize> {
        (self.complete || n <= self.clear).then_some(n)
    }

    /// How many of the most likely it takes until their `share` of the total is `enough`; `None`
    /// if the possible totals give more than one answer, or the known ids do not suffice.
    fn until(&self, share: f64, total: Total, enough: impl Fn(f64, f64) -> bool) -> Option<usize> {
        let mut sum = 0.0;
        for (idx, candidate) in self.list[..self.clear].iter().enumerate() {
            sum += candidate.p;
            if enough(sum * (1.0 + F64_MARGIN), share * total.low) {
                let surely = enough(sum * (1.0 - F64_MARGIN), share * total.high);
                return surely.then_some(idx + 1);
            }
        }
        None
    }
}
