//! Steps that keep some of the members.

use std::ops::Range;

use super::{BUCKETS, LIST_LEN, Own, Spread};
use crate::sample::buckets::{RowSum, count_each};
use crate::sample::candidates::{canonical, prefix_until};
use crate::sample::steps::adaptive_p::Fall;
use crate::sample::{Bitmask, Candidate};

impl Spread<'_> {
    /// Keeps what lies in the buckets before `bucket`, and `kept` of those from it on.
    pub(super) fn cut_behind(&mut self, bucket: u32, kept: &[Candidate]) {
        self.keep_only(0..bucket, kept);
    }

    /// Keeps what lies in some buckets, and `kept` of others.
    fn keep_only(&mut self, buckets: Range<u32>, kept: &[Candidate]) {
        let bucket = |c: &Candidate| {
            // What has a weight of its own has another bucket than its logit.
            let moved = self.holes.binary_search(&c.id).is_ok();
            let own = self.own.iter().find(|own| moved && own.candidate.id == c.id);
            own.map_or_else(|| self.grid.of(self.logits[c.id as usize]), |own| own.bucket)
        };
        let kept: Vec<Own> =
            kept.iter().map(|c| Own { bucket: bucket(c), candidate: *c }).collect();
        self.own.retain(|own| buckets.contains(&own.bucket));
        self.own.extend(kept);
        self.own.sort_by_key(|own| own.bucket);
        let start = self.whole.start.max(buckets.start);
        self.whole = start..self.whole.end.min(buckets.end).max(start);
        self.add_up();
    }

    /// Keeps the shortest prefix whose share of the total satisfies `enough`, at least `min_keep`.
    pub fn keep_until(&mut self, min_keep: usize, enough: impl Fn(f64) -> bool) {
        let end = self.walk(enough);
        if min_keep > 1 && self.count(0..end.bucket) + end.n < min_keep {
            return self.keep(min_keep);
        }
        self.cut_behind(end.bucket, &end.entries[..end.n]);
    }

    /// Keeps the `n` most likely.
    pub fn keep(&mut self, n: usize) {
        self.fill();
        let mut counts = count_each(self.logits, self.grid);
        let whole = self.whole.start as usize..self.whole.end as usize;
        counts[..whole.start].fill(0);
        counts[whole.end..].fill(0);
        for id in &self.holes {
            let bucket = self.grid.of(self.logits[*id as usize]);
            counts[bucket as usize] = counts[bucket as usize].saturating_sub(1);
        }
        self.own.iter().for_each(|own| counts[own.bucket as usize] += 1);
        let mut before = 0;
        for (count, bucket) in counts.iter().zip(0u32..) {
            if before + *count as usize >= n {
                let mut entries = self.members(bucket..bucket + 1);
                entries.sort_unstable_by(canonical);
                let n = (n - before).min(entries.len());
                return self.cut_behind(bucket, &entries[..n]);
            }
            before += *count as usize;
        }
    }

    /// Keeps members of at least this probability, and at least `min_keep`.
    pub fn keep_reaching(&mut self, p: f64, min_keep: usize) {
        let least = p * self.total();
        self.keep_heavy(least, min_keep);
    }

    /// Keeps members of at least this weight, the highest of a row being 1, and at least `min_keep`.
    pub fn keep_heavy(&mut self, least: f64, min_keep: usize) {
        self.fill();
        let (bucket, near) = self.reaching(least);
        if near.len() < min_keep.max(1) && self.count(0..bucket) + near.len() < min_keep.max(1) {
            return self.keep(min_keep.max(1));
        }
        self.cut_behind(bucket, &near);
    }

    /// All in the buckets before the first result have the weight, those of the second, and no others.
    fn reaching(&mut self, least: f64) -> (u32, Vec<Candidate>) {
        let middle = self.bucket_of_weight(least);
        // One to either side, for what rounding does to borders, unless these are on their sides.
        let mut near = middle.saturating_sub(1)..(middle + 2).min(BUCKETS as u32);
        if self.is_plain() {
            let (lowest, _) = self.grid.bounds(&(near.start..middle));
            let (_, highest) = self.grid.bounds(&(middle + 1..near.end.max(middle + 1)));
            near.start = if self.worth.of(lowest) >= least { middle } else { near.start };
            near.end = if self.worth.of(highest) < least { middle + 1 } else { near.end };
        }
        let mut entries = self.members(near.clone());
        entries.retain(|c| c.p >= least);
        (near.start, entries)
    }

    /// Where a member of that weight lies, or nearly.
    pub(super) fn bucket_of_weight(&self, weight: f64) -> u32 {
        match &self.worth.fall {
            None => self.bucket_before_fall(weight),
            Some((fall, total)) => self.bucket_of_fallen(weight, fall, *total),
        }
    }

    /// The same of a weight after adaptive-p: as likely as what lies below its target and has that weight.
    pub(super) fn bucket_of_fallen(&self, weight: f64, fall: &Fall, total: f64) -> u32 {
        let twin = fall.below(weight);
        match twin > 0.0 {
            true => self.bucket_before_fall(twin * total),
            false => BUCKETS as u32 - 1,
        }
    }

    fn bucket_before_fall(&self, weight: f64) -> u32 {
        let deepest = f64::from(self.worth.max) - f64::from(f32::MIN);
        let log = (weight.ln() + self.worth.top).min(0.0);
        self.grid.at(-self.worth.shape.depth(log, deepest) as f32)
    }

    /// The highest probability.
    pub fn max_p(&mut self) -> f64 {
        self.first(1).first().map_or(0.0, |c| c.p)
    }

    /// Keeps members within so many standard deviations of the likeliest; whether it could.
    pub fn keep_within_sigma(&mut self, n: f64, min_keep: usize) -> bool {
        if !self.is_plain() {
            return false;
        }
        let count = self.count(self.span()) as f64;
        let mean = self.sum_row(RowSum::Log) / count;
        let variance = self.sum_row(RowSum::SquareFrom(mean)) / count;
        let heaviest = match self.nearest() {
            Some(distance) => self.worth.of_distance(distance),
            None => return false,
        };
        // A hair of slack, as for a list.
        self.keep_heavy(heaviest * (-n * variance.sqrt() - 1e-12).exp(), min_keep);
        true
    }

    /// Keeps members of at least `min(epsilon, √epsilon · exp(−entropy))`; whether it could.
    pub fn keep_eta(&mut self, epsilon: f64, min_keep: usize) -> bool {
        if !self.is_plain() {
            return false;
        }
        let threshold = epsilon.min(epsilon.sqrt() * (-self.entropy(true)).exp());
        self.keep_reaching(threshold, min_keep);
        true
    }

    /// Keeps the members whose surprise is closest to the entropy, up to this mass; whether it could.
    pub fn keep_typical(&mut self, mass: f64) -> bool {
        if !self.is_plain() {
            return false;
        }
        let entropy = self.entropy(true);
        self.fill();
        let (total, target) = (self.total, mass * self.total);
        // What is nearer than the first distance is kept, what is farther than the second is not.
        let distances = self.distances(total.ln() - entropy);
        let sure = expand(&distances, |d| d.near, |b| self.mass(b), target);
        let enough = expand(&distances, |d| d.far, |b| self.mass(b), target);
        let inner = distances.iter().filter(|d| d.far < sure);
        let inner = inner.fold(None, |all: Option<Range<u32>>, d| match all {
            None => Some(d.bucket..d.bucket + 1),
            Some(all) => Some(all.start.min(d.bucket)..all.end.max(d.bucket + 1)),
        });
        let inner = inner.unwrap_or(0..0);
        let before: f64 = inner.clone().map(|bucket| self.mass(bucket)).sum();
        let is_near = |d: &&Distances| !inner.contains(&d.bucket) && d.near <= enough;
        let near: Vec<u32> = distances.iter().filter(is_near).map(|d| d.bucket).collect();
        let mut closest: Vec<(f64, Candidate)> = Vec::new();
        for run in near.chunk_by(|a, b| a + 1 == *b) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let members = self.members(*first..*last + 1);
            let deviation = |c: Candidate| ((-(c.p / total).ln() - entropy).abs(), c);
            closest.extend(members.into_iter().map(deviation));
        }
        let order = |a: &(f64, Candidate), b: &(f64, Candidate)| {
            a.0.total_cmp(&b.0).then_with(|| canonical(&a.1, &b.1))
        };
        let kept = prefix_until(&mut closest, |(_, c)| c.p, order, |sum| before + sum >= target);
        let kept: Vec<Candidate> = closest[..kept].iter().map(|(_, c)| *c).collect();
        self.keep_only(inner, &kept);
        true
    }

    /// How far the members of every bucket can be from a log-weight.
    fn distances(&self, center: f64) -> Vec<Distances> {
        let log = |bucket: u32| {
            // A little of the neighbours, for what rounding does to borders.
            let begins = self.grid.begins(bucket);
            self.worth.shape.log_weight(-begins) - self.worth.top
        };
        let distances = |bucket: u32| {
            let slack = 1e-5 * (1.0 + log(bucket).abs());
            let (high, low) = (log(bucket) + slack - center, log(bucket + 1) - slack - center);
            let low = if low.is_nan() { f64::NEG_INFINITY } else { low };
            let near = if low <= 0.0 && high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) };
            Distances { bucket, near, far: low.abs().max(high.abs()) }
        };
        self.span().map(distances).collect()
    }

    /// Leaves out every likely choice but the least of them, with probability `q`, as a mixture; whether
    /// it could.
    pub fn exclude(&mut self, q: f64, threshold: f64, ignored: &Bitmask) -> bool {
        if !self.is_plain() {
            return false;
        }
        self.fill();
        let least = threshold * self.total;
        let (bucket, near) = self.reaching(least);
        if self.count(0..bucket) + near.len() > LIST_LEN {
            return false;
        }
        let mut likely = self.members(0..bucket);
        likely.extend_from_slice(&near);
        likely.sort_unstable_by(canonical);
        likely.retain(|c| !ignored.contains(c.id));
        likely.pop();
        let Some(last) = likely.last() else { return true };
        // The rest by itself: beside a large x, what is left of the sum is rounding.
        let behind = self.grid.of(self.logits[last.id as usize]) + 1;
        let mut excluded: Vec<u32> = likely.iter().map(|c| c.id).collect();
        excluded.sort_unstable();
        let before = self.members(0..behind).into_iter();
        let before = before.filter(|c| excluded.binary_search(&c.id).is_err()).map(|c| c.p);
        let rest =
            before.sum::<f64>() + (behind..self.span().end).map(|b| self.mass(b)).sum::<f64>();
        let x: f64 = likely.iter().map(|c| c.p).sum();
        let factor = (1.0 - q) / (1.0 + q * x / rest);
        self.move_to_own(&likely, |this, c| {
            let p = c.p * factor;
            (this.bucket_of_weight(p), p)
        });
        true
    }

    /// Gives members weights of their own.
    pub(super) fn move_to_own(
        &mut self,
        members: &[Candidate],
        weight: impl Fn(&Self, &Candidate) -> (u32, f64),
    ) {
        for c in members {
            let (bucket, p) = weight(self, c);
            let candidate = Candidate { id: c.id, p };
            match self.own.iter().position(|own| own.candidate.id == c.id) {
                Some(at) if p > 0.0 => self.own[at] = Own { bucket, candidate },
                Some(at) => {
                    self.own.remove(at);
                }
                None => {
                    self.holes.push(c.id);
                    let home = self.grid.of(self.logits[c.id as usize]) as usize;
                    if let Some(tables) = &mut self.buffers.tables {
                        tables[0][home] -= f64::from(self.buffers.weights[c.id as usize]);
                    }
                    if p > 0.0 {
                        self.own.push(Own { bucket, candidate });
                    }
                }
            }
        }
        self.holes.sort_unstable();
        self.own.sort_by_key(|own| own.bucket);
        self.add_up();
    }
}

/// How far a bucket's members are from a log-weight: at least, and at most.
struct Distances {
    bucket: u32,
    near: f64,
    far: f64,
}

/// Takes buckets in the order of a distance, which grows to both sides of one of them, until they have
/// the mass: the distance that took; infinite if all do not suffice.
fn expand(
    buckets: &[Distances],
    key: impl Fn(&Distances) -> f64,
    mass: impl Fn(u32) -> f64,
    target: f64,
) -> f64 {
    let nearest = buckets.iter().enumerate().min_by(|(_, a), (_, b)| key(a).total_cmp(&key(b)));
    let middle = nearest.map_or(0, |(at, _)| at);
    let (before, from) = buckets.split_at(middle);
    let (mut before, mut from) = (before.iter().rev().peekable(), from.iter().peekable());
    let mut sum = 0.0;
    loop {
        let is_before = match (before.peek(), from.peek()) {
            (Some(a), Some(b)) => key(a) < key(b),
            (a, _) => a.is_some(),
        };
        let Some(next) = (if is_before { before.next() } else { from.next() }) else {
            return f64::INFINITY;
        };
        sum += mass(next.bucket);
        if sum >= target {
            return key(next);
        }
    }
}
