//! Candidates that are too many for a list: the members of a row, in buckets.
//!
//! Steps keep what they would keep of a list, and a draw falls on the id it would fall on in one, with
//! weights in f64 and in canonical order; but only the bucket that decides is ever looked into. What is
//! needed of all others are masses. Cuts leave whole buckets and, of those at the ends, single members.
//!
//! Must hold: a bucket's members are less likely than those of the buckets before it. A set that has
//! become short enough is taken as a list, [`Spread::settle`].

mod cut;
mod reweigh;
mod tail_free;

use std::ops::Range;

use super::buckets::{self, BUCKETS, Grid, RowSum, Tables, Worth};
use super::candidates::{canonical, prefix_until};
use super::sorted::Sorted;
use super::{Candidate, Candidates, Scratch, Shape, scan};

/// Sets up to this size are lists.
pub const LIST_LEN: usize = 2048;
/// What lies deeper has no weight in f32 either.
const DEEPEST_LOG: f64 = -90.0;
/// Logits this close are in one bucket: the depth of a weight is not found more exactly.
const SHALLOWEST: f64 = 1e-9;

/// The memory of a spread.
#[derive(Debug, Default)]
pub struct Buffers {
    weights: Vec<f32>,
    tables: Option<Box<Tables>>,
    /// The mass of every bucket's members.
    masses: Vec<f64>,
    found: Vec<(f32, u32)>,
    sorted: Sorted,
}

/// A member that is not told by its bucket.
#[derive(Clone, Copy, Debug)]
struct Own {
    bucket: u32,
    /// With its weight, relative to those of all others.
    candidate: Candidate,
}

/// What has been computed of the weights as they are now.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Known {
    Nothing,
    /// Of every logit, and their sum.
    Weights,
    /// And the mass of every bucket.
    Masses,
}

/// Many candidates, at least one.
#[derive(Debug)]
pub struct Spread<'a> {
    logits: &'a [f32],
    /// The lowest that is finite.
    lowest: f32,
    worth: Worth,
    grid: Grid,
    /// Whole buckets, up to `holes`.
    whole: Range<u32>,
    /// In the order of buckets.
    own: Vec<Own>,
    /// Increasing ids in whole buckets that are no members, or are among `own`.
    holes: Vec<u32>,
    /// The sum of all members' weights; not a number while it is not known.
    total: f64,
    known: Known,
    buffers: Buffers,
}

/// Where a walk over the members ended: behind the last of `entries[..n]`.
struct End {
    bucket: u32,
    /// The bucket's members, the first `n` before all others and the last of these in its place.
    entries: Vec<Candidate>,
    n: usize,
}

impl<'a> Spread<'a> {
    /// All ids of a row with a finite maximum.
    pub fn new(logits: &'a [f32], max: f32, shape: Shape, scratch: &mut Scratch) -> Self {
        let lowest = scan::lowest_finite(logits);
        let deepest = (f64::from(max) - f64::from(lowest)).max(f64::MIN_POSITIVE);
        let depth = -shape.depth(DEEPEST_LOG, deepest);
        Spread {
            logits,
            lowest,
            worth: Worth { max, shape, top: 0.0, fall: None },
            grid: Grid::new(max, depth.max(SHALLOWEST)),
            whole: 0..BUCKETS as u32,
            own: Vec::new(),
            holes: Vec::new(),
            total: f64::NAN,
            known: Known::Nothing,
            buffers: std::mem::take(&mut scratch.spread),
        }
    }

    /// The memory, for the next row.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// Whether every logit still has the weight that its distance gives it.
    fn is_plain(&self) -> bool {
        self.holes.is_empty() && self.worth.fall.is_none()
    }

    /// Whether the members are the whole row, weighed by distance.
    fn is_row(&self) -> bool {
        self.is_plain() && self.own.is_empty() && self.whole == (0..BUCKETS as u32)
    }

    /// The sum of all weights.
    pub fn total(&mut self) -> f64 {
        if self.known == Known::Nothing {
            // Cut rows need masses anyway.
            match self.is_row() {
                true => {
                    self.total =
                        buckets::weigh(self.logits, &self.worth, &mut self.buffers.weights);
                    self.known = Known::Weights;
                }
                false => self.fill(),
            }
        }
        self.total
    }

    /// Makes masses known.
    fn fill(&mut self) {
        self.fill_with(None);
    }

    /// The same, and the sum of weights times log-weights of all logits, if nothing was known.
    fn fill_with(&mut self, weighted_log: Option<&mut f64>) {
        if self.known == Known::Masses {
            return;
        }
        let Buffers { weights, tables, .. } = &mut self.buffers;
        let tables = tables.get_or_insert_with(|| Box::new([[0.0; 2 * BUCKETS]; 2]));
        buckets::fill(self.logits, self.grid, &self.worth, weights, tables, weighted_log);
        for id in &self.holes {
            let idx = *id as usize;
            tables[0][self.grid.of(self.logits[idx]) as usize] -= f64::from(weights[idx]);
        }
        self.known = Known::Masses;
        self.add_up();
    }

    /// Masses of members and their sum, from those of all logits.
    fn add_up(&mut self) {
        let Buffers { tables, masses, .. } = &mut self.buffers;
        masses.clear();
        masses.resize(BUCKETS, 0.0);
        let whole = self.whole.start as usize..self.whole.end as usize;
        if let Some(tables) = tables {
            masses[whole.clone()].copy_from_slice(&tables[0][whole]);
        }
        for own in &self.own {
            masses[own.bucket as usize] += own.candidate.p;
        }
        // What was taken out of a bucket leaves what rounding leaves.
        masses.iter_mut().for_each(|mass| *mass = mass.max(0.0));
        self.total = masses.iter().sum();
    }

    /// The mass of a bucket's members; masses are known.
    fn mass(&self, bucket: u32) -> f64 {
        self.buffers.masses.get(bucket as usize).copied().unwrap_or(0.0)
    }

    fn own_in(&self, buckets: Range<u32>) -> &[Own] {
        let start = self.own.partition_point(|own| own.bucket < buckets.start);
        let end = self.own.partition_point(|own| own.bucket < buckets.end);
        &self.own[start..end.max(start)]
    }

    /// The buckets between the first and the last member.
    fn span(&self) -> Range<u32> {
        let first = self.own.first().map_or(u32::MAX, |own| own.bucket);
        let last = self.own.last().map_or(0, |own| own.bucket + 1);
        match self.whole.is_empty() {
            true => first.min(last)..last,
            false => first.min(self.whole.start)..last.max(self.whole.end),
        }
    }

    /// The members of some buckets with their weights, in the order of ids.
    fn members(&mut self, buckets: Range<u32>) -> Vec<Candidate> {
        let whole = buckets.start.max(self.whole.start)..buckets.end.min(self.whole.end);
        let own = self.own_in(buckets.clone()).iter();
        let mut list: Vec<Candidate> = own.map(|own| own.candidate).collect();
        if !whole.is_empty() {
            let found = &mut self.buffers.found;
            found.clear();
            buckets::find(self.logits, self.grid, whole, found);
            let member = |&(l, id): &(f32, u32)| Candidate { id, p: self.worth.of(l) };
            let known =
                found.iter().filter(|(_, id)| self.holes.binary_search(id).is_err()).map(member);
            list.extend(known.filter(|c| c.p > 0.0));
        }
        list
    }

    /// How many members there are, of some buckets.
    fn count(&self, buckets: Range<u32>) -> usize {
        let own = self.own_in(buckets.clone()).len();
        let whole = buckets.start.max(self.whole.start)..buckets.end.min(self.whole.end);
        if whole.is_empty() {
            return own;
        }
        let is_in = |id: &&u32| whole.contains(&self.grid.of(self.logits[**id as usize]));
        let holes = self.holes.iter().filter(is_in).count();
        let n = buckets::count(self.logits, self.grid, whole.clone());
        let without = if whole.end as usize == BUCKETS { self.without_weight() } else { 0 };
        own + n - holes - without
    }

    /// How many logits of the last bucket lie so deep that they have no weight.
    fn without_weight(&self) -> usize {
        if self.worth.of(self.lowest) > 0.0 {
            return 0;
        }
        let last = BUCKETS as u32 - 1;
        let is_in = |l: &&f32| **l > f32::NEG_INFINITY && self.grid.of(**l) == last;
        self.logits.iter().filter(is_in).filter(|l| self.worth.of(**l) == 0.0).count()
    }

    /// The same set as a list.
    pub fn into_list(mut self, scratch: &mut Scratch) -> Option<Candidates> {
        let members = self.members(0..BUCKETS as u32);
        scratch.spread = self.into_buffers();
        let n = members.len();
        Candidates::most_likely(members, n)
    }

    /// Whether members have become few enough for a list.
    pub fn fits_list(&self) -> bool {
        if self.known == Known::Masses && self.worth.fall.is_none() {
            // No member of a bucket is heavier than where it begins, so there are at least so many.
            let mut least = 0.0;
            for bucket in self.span() {
                let heaviest = self.worth.of_distance(self.grid.begins(bucket));
                least += self.mass(bucket) / heaviest.max(f64::MIN_POSITIVE);
                if least > 1.01 * LIST_LEN as f64 {
                    return false;
                }
            }
        }
        self.count(self.span()) <= LIST_LEN
    }

    /// Entropy in nats. Afterwards the masses are known, if they `will_count`.
    fn entropy(&mut self, will_count: bool) -> f64 {
        let mut weighted_log = 0.0;
        match (self.known, self.is_row(), will_count) {
            (Known::Nothing, true, true) => self.fill_with(Some(&mut weighted_log)),
            (Known::Nothing, true, false) => {
                let weights = &mut self.buffers.weights;
                let sums = buckets::weigh_with_logs(self.logits, &self.worth, weights);
                (self.total, weighted_log) = sums;
                self.known = Known::Weights;
            }
            _ => {
                self.total();
                weighted_log = self.sum_row(RowSum::WeightedLog);
            }
        }
        self.total.ln() - weighted_log / self.total
    }

    /// Of all members; they are plain, and weights are known if they count.
    fn sum_row(&mut self, what: RowSum) -> f64 {
        let Buffers { weights, .. } = &self.buffers;
        let of_own = |own: &Own| {
            let log = own.candidate.p.ln();
            match what {
                RowSum::WeightedLog => own.candidate.p * log,
                RowSum::Log => log,
                RowSum::SquareFrom(mean) => (log - mean) * (log - mean),
            }
        };
        let own: f64 = self.own.iter().map(of_own).sum();
        // What lies in the last bucket may have no weight, and then is no candidate.
        let last = BUCKETS as u32 - 1;
        let whole = self.whole.start..self.whole.end.min(last);
        let (logits, grid, worth) = (self.logits, self.grid, &self.worth);
        let mut sum = own;
        if !whole.is_empty() {
            let is_weighted = matches!(what, RowSum::WeightedLog);
            let weights = if is_weighted { weights.as_slice() } else { logits };
            sum += buckets::sum_row(logits, grid, whole, worth, weights, what);
        }
        if self.whole.end > last {
            for candidate in self.members(last..last + 1) {
                let is_own = self.own.iter().any(|own| own.candidate.id == candidate.id);
                sum += if is_own { 0.0 } else { of_own(&Own { bucket: last, candidate }) };
            }
        }
        sum
    }

    /// Walks the members, most likely first, until their share satisfies `enough`; to the last if none
    /// does.
    fn walk(&mut self, enough: impl Fn(f64) -> bool) -> End {
        self.fill();
        let total = self.total;
        let mut sum = 0.0;
        let mut end = None;
        for bucket in self.span() {
            let mass = self.mass(bucket);
            if mass <= 0.0 || !enough((sum + mass) / total) {
                sum += mass;
                continue;
            }
            let mut entries = self.members(bucket..bucket + 1);
            let until = |more: f64| enough((sum + more) / total);
            let n = prefix_until(&mut entries, |c: &Candidate| c.p, canonical, until);
            let within: f64 = entries[..n].iter().map(|c| c.p).sum();
            if enough((sum + within) / total) {
                return End { bucket, entries, n };
            }
            // Rounding only; the next one crosses.
            sum += within;
            if n > 0 {
                end = Some(End { bucket, entries, n });
            }
        }
        end.unwrap_or_else(|| self.last())
    }

    /// Behind the last member.
    fn last(&mut self) -> End {
        for bucket in self.span().rev() {
            let mut entries = self.members(bucket..bucket + 1);
            if !entries.is_empty() {
                entries.sort_unstable_by(canonical);
                return End { bucket, n: entries.len(), entries };
            }
        }
        End { bucket: 0, entries: Vec::new(), n: 0 }
    }

    /// The candidate that the draw `r` in `[0, 1]` falls on: the first whose cumulative probability
    /// exceeds `r`, else the last.
    pub fn pick(&mut self, r: f64) -> Option<Candidate> {
        let end = self.walk(|share| share > r);
        let chosen = end.n.checked_sub(1).and_then(|at| end.entries.get(at))?;
        Some(Candidate { p: chosen.p / self.total, ..*chosen })
    }

    /// The first `n` in canonical order, or all if there are fewer.
    pub fn first(&mut self, n: usize) -> Vec<Candidate> {
        let span = self.span();
        let mut reach = span.start + 1;
        let mut list = Vec::new();
        while n > 0 && (list.len() < n && reach < span.end || list.is_empty()) {
            reach = span.end.min(span.start + 2 * (reach - span.start).max(8));
            list = self.members(span.start..reach);
            if reach == span.end {
                break;
            }
        }
        list.sort_unstable_by(canonical);
        list.truncate(n);
        let total = self.total();
        list.iter_mut().for_each(|c| c.p /= total);
        list
    }

    /// The probability that an id had before adaptive-p.
    pub fn p_before_fall(&self, id: u32) -> Option<f64> {
        let (_, total) = self.worth.fall?;
        Some(self.worth.before_fall(*self.logits.get(id as usize)?) / total)
    }

    /// The bucket of a logit.
    pub fn bucket_of(&self, logit: f32) -> u32 {
        self.grid.of(logit)
    }

    /// The bucket in which the most likely come to this share, or close to where they do.
    pub fn bucket_until(&mut self, share: f64) -> u32 {
        self.fill();
        let mut sum = 0.0;
        let reaches = |bucket: &u32| {
            sum += self.mass(*bucket);
            sum >= share * self.total
        };
        self.span().find(reaches).unwrap_or(BUCKETS as u32 - 1)
    }

    /// How many members lie in the buckets before one.
    pub fn count_before(&self, bucket: u32) -> usize {
        self.count(0..bucket)
    }

    /// The members of the buckets up to this one, with it, and their weights.
    pub fn members_until(&mut self, bucket: u32) -> Vec<Candidate> {
        self.members(0..bucket.saturating_add(1).min(BUCKETS as u32))
    }
}
