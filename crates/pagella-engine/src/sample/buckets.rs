//! A row in buckets by distance from its highest logit, and the passes over a whole row that work with
//! them.
//!
//! All cuts follow the order of logits, so buckets of logits are in the order of candidates: what lies in
//! one bucket is less likely than everything in the buckets before it. Only the bucket in which a cut or a
//! draw falls has to be looked into. Which bucket a logit has is decided by the same few operations in
//! every pass, so a pass never disagrees with another; where its borders lie to the last bit is of no
//! interest.
//!
//! Masses are sums of weights in f32, added in f64; see the precision stated in [`super`].

use std::ops::Range;

use pagella_backend::isa::{self, Kernel};

use super::exp::{LOWEST, exp};
use super::steps::adaptive_p::Fall;
use super::{Shape, scan};

/// How many there are. Two tables of masses fit the first-level cache.
pub const BUCKETS: usize = 2048;
/// The last bucket; what lies deeper is in it, too.
const LAST: f32 = (BUCKETS - 1) as f32;
/// Adding it leaves the rounded integer in the low bits of the f32.
pub const ROUND: f32 = 8_388_608.0;
/// Logits that are worked on while they are in the first-level cache.
pub const PART: usize = 16 * scan::CHUNK;
/// Lanes of the vector loops.
const LANES: usize = 16;

/// Which bucket a logit has: the nearest of equally spaced distances from the highest.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    max: f32,
    /// Buckets per unit of distance.
    scale: f32,
}

impl Grid {
    /// Buckets that reach `depth` below `max`.
    pub fn new(max: f32, depth: f64) -> Self {
        let scale = f64::from(LAST) / depth;
        Grid { max, scale: if scale > 0.0 { scale.min(1e30) as f32 } else { 0.0 } }
    }

    /// The bucket of a logit that is not above the highest.
    #[inline(always)]
    pub fn of(self, logit: f32) -> u32 {
        self.at(self.max - logit)
    }

    /// The bucket of a distance.
    #[inline(always)]
    pub fn at(self, distance: f32) -> u32 {
        let place = distance * self.scale;
        let place = if place < LAST { place } else { LAST };
        (place + ROUND).to_bits() & (BUCKETS as u32 - 1)
    }

    /// The finite logits of some buckets: from the first up to the second, with both.
    pub fn bounds(self, buckets: &Range<u32>) -> (f32, f32) {
        // Buckets fall as logits rise, so each bound is where a test changes its answer once.
        let first_that = |test: &dyn Fn(f32) -> bool| {
            let (mut below, mut from) = (ordinal(f32::MIN) - 1, ordinal(self.max) + 1);
            while from - below > 1 {
                let middle = below + (from - below) / 2;
                *(if test(of_ordinal(middle)) { &mut from } else { &mut below }) = middle;
            }
            from
        };
        let lowest = first_that(&|l| self.of(l) < buckets.end);
        let above = first_that(&|l| self.of(l) < buckets.start);
        match lowest < above {
            true => (of_ordinal(lowest), of_ordinal(above - 1)),
            false => (f32::INFINITY, f32::NEG_INFINITY),
        }
    }

    /// Whether a bucket is narrower than this.
    pub fn is_finer_than(self, width: f64) -> bool {
        f64::from(self.scale) * width > 1.0
    }

    /// How far from the highest logit a bucket begins; the last one ends nowhere.
    pub fn begins(self, bucket: u32) -> f64 {
        match bucket as usize {
            BUCKETS.. => f64::INFINITY,
            bucket => ((bucket as f64 - 0.5) / f64::from(self.scale)).max(0.0),
        }
    }
}

/// Numbers in the order of floats, the two zeros next to each other.
fn ordinal(value: f32) -> i64 {
    let bits = i64::from(value.to_bits() & 0x7FFF_FFFF);
    if value.is_sign_negative() { -1 - bits } else { bits }
}

fn of_ordinal(ordinal: i64) -> f32 {
    match ordinal {
        0.. => f32::from_bits(ordinal as u32),
        _ => -f32::from_bits((-1 - ordinal) as u32),
    }
}

/// What a logit is worth: `exp` of its log-weight, or what adaptive-p makes of that.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    /// The highest logit of the row.
    pub max: f32,
    /// What the distance from it means.
    pub shape: Shape,
    /// The log-weight that counts as 0.
    pub top: f64,
    /// Falls with the distance of the probability from a target; weight divided by the number is the
    /// probability.
    pub fall: Option<(Fall, f64)>,
}

impl Worth {
    /// Of one logit, as candidates have it.
    pub fn of(&self, logit: f32) -> f64 {
        let weight = self.before_fall(logit);
        self.fall.map_or(weight, |(fall, total)| fall.weight(weight / total))
    }

    /// The same before adaptive-p.
    pub fn before_fall(&self, logit: f32) -> f64 {
        self.of_distance(f64::from(self.max) - f64::from(logit))
    }

    /// Of what lies so far below the highest logit.
    pub fn of_distance(&self, distance: f64) -> f64 {
        (self.shape.log_weight(-distance) - self.top).exp()
    }

    /// The sum of weights of a part of the row times their logarithms. `logs` is room for a part.
    #[inline(always)]
    fn sum_with_logs(&self, logits: &[f32], weights: &[f32], logs: &mut [f32; PART]) -> f64 {
        let logs = &mut logs[..logits.len()];
        self.shape.log_weights(logits, self.max, logs);
        let top = self.top as f32;
        for (x, w) in logs.iter_mut().zip(weights) {
            // What has no weight may have an infinite logarithm.
            let log = if *x > LOWEST { *x } else { LOWEST };
            *x = (log - top) * w;
        }
        scan::sum(logs)
    }

    /// Of a part of the row, in f32.
    #[inline(always)]
    pub fn of_all(&self, logits: &[f32], out: &mut [f32]) {
        if self.top == 0.0 {
            self.shape.weights(logits, self.max, out);
        } else {
            self.shape.log_weights(logits, self.max, out);
            let top = self.top as f32;
            out.iter_mut().for_each(|x| *x = exp(*x - top));
        }
        if let Some((fall, total)) = &self.fall {
            let share = (1.0 / total) as f32;
            out.iter_mut().for_each(|w| *w = fall.weight_f32(*w * share));
        }
    }
}

/// Fills `weights`, in f32; returns their sum.
pub fn weigh(logits: &[f32], worth: &Worth, weights: &mut Vec<f32>) -> f64 {
    weights.resize(logits.len(), 0.0);
    isa::run(Weigh { logits, worth, weights, weighted_log: None })
}

/// The same, with the sum of weights times log-weights; there is no adaptive-p.
pub fn weigh_with_logs(logits: &[f32], worth: &Worth, weights: &mut Vec<f32>) -> (f64, f64) {
    weights.resize(logits.len(), 0.0);
    let mut logs = 0.0;
    let sum = isa::run(Weigh { logits, worth, weights, weighted_log: Some(&mut logs) });
    (sum, logs)
}

struct Weigh<'a> {
    logits: &'a [f32],
    worth: &'a Worth,
    weights: &'a mut [f32],
    /// Receives the sum of weights times log-weights.
    weighted_log: Option<&'a mut f64>,
}

impl Kernel for Weigh<'_> {
    type Out = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sum = 0.0;
        let mut logs = [0f32; PART];
        let mut weighted_log = self.weighted_log;
        for (logits, weights) in self.logits.chunks(PART).zip(self.weights.chunks_mut(PART)) {
            self.worth.of_all(logits, weights);
            sum += scan::sum(weights);
            if let Some(weighted_log) = &mut weighted_log {
                **weighted_log += self.worth.sum_with_logs(logits, weights, &mut logs);
            }
        }
        sum
    }
}

/// Masses of buckets, twice: logits that follow each other do not wait for each other's sum. For the same
/// reason the last bucket, which many rows have most of their logits in, has a place for every lane.
pub type Tables = [[f64; 2 * BUCKETS]; 2];

/// Fills `weights` and the mass of every bucket, in the first of the tables; `weighted_log` receives the
/// sum of weights times log-weights, which there is without adaptive-p.
pub fn fill(
    logits: &[f32],
    grid: Grid,
    worth: &Worth,
    weights: &mut Vec<f32>,
    tables: &mut Tables,
    weighted_log: Option<&mut f64>,
) {
    weights.resize(logits.len(), 0.0);
    isa::run(Fill { logits, grid, worth, weights, tables, weighted_log });
    let [first, second] = tables;
    let used = BUCKETS + LANES;
    first[..used].iter_mut().zip(&second[..used]).for_each(|(a, b)| *a += *b);
    let (buckets, more) = first[..used].split_at_mut(BUCKETS);
    buckets[BUCKETS - 1] += more.iter().sum::<f64>();
}

struct Fill<'a> {
    logits: &'a [f32],
    grid: Grid,
    worth: &'a Worth,
    weights: &'a mut [f32],
    tables: &'a mut Tables,
    /// Receives the sum of weights times log-weights.
    weighted_log: Option<&'a mut f64>,
}

impl Kernel for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        self.tables.iter_mut().for_each(|table| table[..BUCKETS + LANES].fill(0.0));
        let [first, second] = self.tables;
        let mut places = [0u32; PART];
        let mut logs = [0f32; PART];
        let mut weighted_log = self.weighted_log;
        for (logits, weights) in self.logits.chunks(PART).zip(self.weights.chunks_mut(PART)) {
            self.worth.of_all(logits, weights);
            if let Some(weighted_log) = &mut weighted_log {
                **weighted_log += self.worth.sum_with_logs(logits, weights, &mut logs);
            }
            let places = &mut places[..logits.len()];
            for (i, (place, l)) in places.iter_mut().zip(logits).enumerate() {
                let bucket = self.grid.of(*l);
                let lane = (i % LANES) as u32 & mask(bucket == BUCKETS as u32 - 1);
                *place = bucket + lane;
            }
            let (pairs, rest) = weights.as_chunks::<2>();
            let (place_pairs, place_rest) = places.as_chunks::<2>();
            for ([a, b], [i, j]) in pairs.iter().zip(place_pairs) {
                first[*i as usize % (2 * BUCKETS)] += f64::from(*a);
                second[*j as usize % (2 * BUCKETS)] += f64::from(*b);
            }
            for (w, i) in rest.iter().zip(place_rest) {
                first[*i as usize % (2 * BUCKETS)] += f64::from(*w);
            }
        }
    }
}

/// Appends the finite logits of some buckets with their ids, in order of ids.
pub fn find(logits: &[f32], grid: Grid, buckets: Range<u32>, found: &mut Vec<(f32, u32)>) {
    let (low, high) = grid.bounds(&buckets);
    isa::run(Find { logits, low, high, found });
}

struct Find<'a> {
    logits: &'a [f32],
    low: f32,
    high: f32,
    found: &'a mut Vec<(f32, u32)>,
}

impl Kernel for Find<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (low, high) = (self.low, self.high);
        let is_in = |l: f32| (l >= low) & (l <= high);
        for (chunk, start) in self.logits.chunks(scan::CHUNK).zip((0u32..).step_by(scan::CHUNK)) {
            let (parts, rest) = chunk.as_chunks::<LANES>();
            let mut any = [0u32; LANES];
            for part in parts {
                any.iter_mut().zip(part).for_each(|(any, &l)| *any |= mask(is_in(l)));
            }
            if any.iter().fold(0, |all, any| all | any) != 0 {
                for (part, start) in parts.iter().zip((start..).step_by(LANES)) {
                    let mut any = [0u32; LANES];
                    any.iter_mut().zip(part).for_each(|(any, &l)| *any = mask(is_in(l)));
                    if any.iter().fold(0, |all, any| all | any) != 0 {
                        append(part, start, &is_in, self.found);
                    }
                }
            }
            append(rest, start + (chunk.len() - rest.len()) as u32, &is_in, self.found);
        }
    }
}

#[inline(always)]
fn append(logits: &[f32], start: u32, is_in: &impl Fn(f32) -> bool, found: &mut Vec<(f32, u32)>) {
    for (l, id) in logits.iter().zip(start..) {
        if is_in(*l) {
            found.push((*l, id));
        }
    }
}

/// How many finite logits some buckets have.
pub fn count(logits: &[f32], grid: Grid, buckets: Range<u32>) -> usize {
    let (low, high) = grid.bounds(&buckets);
    isa::run(Count { logits, low, high })
}

struct Count<'a> {
    logits: &'a [f32],
    low: f32,
    high: f32,
}

impl Kernel for Count<'_> {
    type Out = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let (low, high) = (self.low, self.high);
        // As floats, which vectors add; a lane never counts as far as these are exact.
        let one = |l: f32| f32::from_bits(1f32.to_bits() & mask((l >= low) & (l <= high)));
        let (parts, rest) = self.logits.as_chunks::<LANES>();
        let mut lanes = [0f32; LANES];
        for part in parts {
            lanes.iter_mut().zip(part).for_each(|(n, &l)| *n += one(l));
        }
        let rest: f32 = rest.iter().map(|l| one(*l)).sum();
        lanes.iter().map(|n| *n as usize).sum::<usize>() + rest as usize
    }
}

/// How many finite logits every bucket has.
pub fn count_each(logits: &[f32], grid: Grid) -> Vec<u32> {
    let mut counts = vec![0u32; BUCKETS];
    let finite = logits.iter().filter(|l| **l > f32::NEG_INFINITY);
    finite.for_each(|l| counts[grid.of(*l) as usize] += 1);
    counts
}

/// What is summed over the logits of some buckets.
#[derive(Clone, Copy, Debug)]
pub enum RowSum {
    /// Weight times log-weight.
    WeightedLog,
    /// The log-weight.
    Log,
    /// The square of its distance from a value.
    SquareFrom(f64),
}

/// That sum; `weights` are those of the row, and as many as there are logits.
pub fn sum_row(
    logits: &[f32],
    grid: Grid,
    buckets: Range<u32>,
    worth: &Worth,
    weights: &[f32],
    what: RowSum,
) -> f64 {
    let (low, high) = grid.bounds(&buckets);
    isa::run(SumRow { logits, low, high, worth, weights, what })
}

struct SumRow<'a> {
    logits: &'a [f32],
    low: f32,
    high: f32,
    worth: &'a Worth,
    weights: &'a [f32],
    what: RowSum,
}

impl Kernel for SumRow<'_> {
    type Out = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let (low, high, top) = (self.low, self.high, self.worth.top as f32);
        let mut logs = [0f32; PART];
        let mut sum = 0.0;
        for (logits, weights) in self.logits.chunks(PART).zip(self.weights.chunks(PART)) {
            let logs = &mut logs[..logits.len()];
            self.worth.shape.log_weights(logits, self.worth.max, logs);
            match self.what {
                RowSum::Log => logs.iter_mut().for_each(|x| *x -= top),
                RowSum::WeightedLog => {
                    logs.iter_mut().zip(weights).for_each(|(x, w)| *x = (*x - top) * w);
                }
                RowSum::SquareFrom(mean) => {
                    let from = mean as f32 + top;
                    logs.iter_mut().for_each(|x| *x = (*x - from) * (*x - from));
                }
            }
            // Bits are cleared rather than multiplied by 0: what is not asked for may be infinite.
            for (x, l) in logs.iter_mut().zip(logits) {
                *x = f32::from_bits(x.to_bits() & mask((*l >= low) & (*l <= high)));
            }
            sum += scan::sum(logs);
        }
        sum
    }
}

/// All bits or none.
#[inline(always)]
fn mask(is: bool) -> u32 {
    0u32.wrapping_sub(u32::from(is))
}
