//! Logits of a row in their order, without ids, and how much their weights bend from one to the next.
//!
//! A pass distributes them over buckets of a few each, which are sorted by insertion: for the lengths of
//! vocabularies that is several times as quick as comparing everything.

use pagella_backend::isa::{self, Kernel};

use super::Shape;
use super::buckets::{PART, ROUND, Worth};
use super::exp::exp;

/// Finer buckets, of a few logits each, in which the logits between two are sorted.
const FINE: usize = 1 << 17;
/// Longer ones are left to the library.
const FEW: usize = 48;

/// Logits by themselves, highest first, and what is made of neighbours.
#[derive(Debug, Default)]
pub struct Sorted {
    /// The logits; whoever sorts replaces them.
    pub logits: Vec<f32>,
    places: Vec<u32>,
    falls: Vec<f32>,
    /// How much the weights of every three neighbours bend.
    pub bends: Vec<f32>,
}

impl Sorted {
    /// Those from `low` to `high` of a row.
    pub fn sort(&mut self, logits: &[f32], low: f32, high: f32) {
        self.places.clear();
        self.places.resize(FINE + 2, 0);
        self.logits.resize(logits.len(), 0.0);
        let (places, sorted) = (&mut self.places[..], &mut self.logits[..]);
        let n = isa::run(Sort { logits, low, high, places, sorted });
        self.logits.truncate(n);
    }

    /// Fills `bends` for the logits from one on. The shape is linear. Each is within 1e-6 of its two
    /// differences, as long as neighbours are near.
    pub fn bend(&mut self, from: usize, worth: &Worth) {
        let logits = self.logits.get(from..).unwrap_or_default();
        self.falls.resize(logits.len(), 0.0);
        self.bends.resize(logits.len().saturating_sub(2), 0.0);
        let (falls, bends) = (&mut self.falls[..], &mut self.bends[..]);
        isa::run(Bend { sorted: logits, worth, falls, bends });
    }
}

struct Sort<'a> {
    logits: &'a [f32],
    low: f32,
    high: f32,
    /// Where every fine bucket goes on, one later; the last is for all other logits.
    places: &'a mut [u32],
    sorted: &'a mut [f32],
}

impl Kernel for Sort<'_> {
    type Out = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let Sort { logits, low, high, places, sorted } = self;
        let last = (FINE - 1) as f32;
        let scale = (last / (high - low).max(f32::MIN_POSITIVE)).min(1e30);
        let fine = |l: f32| {
            let place = (high - l) * scale;
            let place = if place < last { place } else { last };
            let bucket = (place + ROUND).to_bits() & (FINE as u32 - 1);
            if (l >= low) & (l <= high) { bucket } else { FINE as u32 }
        };
        let mut part = [0u32; PART];
        for logits in logits.chunks(PART) {
            part.iter_mut().zip(logits).for_each(|(place, l)| *place = fine(*l));
            part[..logits.len()].iter().for_each(|place| places[*place as usize + 1] += 1);
        }
        let mut sum = 0;
        for place in places.iter_mut() {
            sum += *place;
            *place = sum;
        }
        for logits in logits.chunks(PART) {
            part.iter_mut().zip(logits).for_each(|(place, l)| *place = fine(*l));
            for (place, l) in part.iter().zip(logits) {
                let to = &mut places[*place as usize];
                sorted[*to as usize] = *l;
                *to += 1;
            }
        }
        let mut start = 0;
        for end in places[..FINE].iter().map(|end| *end as usize) {
            let bucket = &mut sorted[start..end];
            if bucket.len() > FEW {
                bucket.sort_unstable_by(|a, b| b.total_cmp(a));
            } else {
                insert_each(bucket);
            }
            start = end;
        }
        start
    }
}

/// Sorts a few logits, highest first.
#[inline(always)]
fn insert_each(few: &mut [f32]) {
    for i in 1..few.len() {
        let l = few[i];
        let mut to = i;
        while to > 0 && few[to - 1] < l {
            few[to] = few[to - 1];
            to -= 1;
        }
        few[to] = l;
    }
}

/// Distances of log-weights up to which a series has the precision of f32.
const SERIES_TO: f32 = 0.125;

struct Bend<'a> {
    sorted: &'a [f32],
    worth: &'a Worth,
    falls: &'a mut [f32],
    bends: &'a mut [f32],
}

impl Kernel for Bend<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Shape::Linear { scale } = self.worth.shape else { return };
        let scale = scale as f32;
        self.worth.of_all(self.sorted, self.falls);
        // Weight times what the next one lacks: the difference of two weights would be rounding.
        let next = self.sorted.get(1..).unwrap_or_default();
        for ((fall, l), next) in self.falls.iter_mut().zip(self.sorted).zip(next) {
            let d = (l - next) * scale;
            let series = d * (1.0 - d / 2.0 * (1.0 - d / 3.0 * (1.0 - d / 4.0 * (1.0 - d / 5.0))));
            let lack = if d < SERIES_TO { series } else { 1.0 - exp(-d) };
            *fall *= lack;
        }
        let next = self.falls.get(1..).unwrap_or_default();
        for ((bend, fall), next) in self.bends.iter_mut().zip(self.falls.iter()).zip(next) {
            *bend = (fall - next).abs();
        }
    }
}
