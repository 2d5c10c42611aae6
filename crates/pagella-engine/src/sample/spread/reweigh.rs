//! Steps that give every member another weight.

use super::{BUCKETS, Known, LIST_LEN, Own, Spread};
use crate::sample::Candidate;
use crate::sample::steps::adaptive_p::Fall;

/// Below this, adaptive-p gives different probabilities the same weight.
const LEAST_P: f64 = 1e-13;
/// Width of a bucket from which on adaptive-p tells buckets by weights.
const FINEST: f64 = 1e-6;

impl Spread<'_> {
    /// `p^(1 / temperature)`; whether it could.
    pub fn temper(&mut self, temperature: f64) -> bool {
        if !self.is_plain() {
            return false;
        }
        let Some(distance) = self.nearest() else { return false };
        self.worth.shape = self.worth.shape.times(1.0 / temperature);
        // The likeliest member counts 1, or colder weights would vanish.
        self.worth.top = self.worth.shape.log_weight(-distance);
        self.reweigh_own();
        true
    }

    /// The distance of the likeliest member from the highest logit.
    pub(super) fn nearest(&mut self) -> Option<f64> {
        if self.own.is_empty() && self.whole.start == 0 {
            return Some(0.0);
        }
        let likeliest = self.first(1).first().copied()?;
        let logit = self.logits.get(likeliest.id as usize)?;
        Some(f64::from(self.worth.max) - f64::from(*logit))
    }

    /// The temperature between `min` and `max` that the entropy asks for; `None` if it cannot be told.
    pub fn dynamic_temperature(&mut self, min: f32, max: f32, exponent: f32) -> Option<f64> {
        if !self.is_plain() {
            return None;
        }
        let full = (self.count(self.span()) as f64).ln();
        let share = if full == 0.0 { 0.0 } else { (self.entropy(false) / full).clamp(0.0, 1.0) };
        Some(f64::from(min) + f64::from(max - min) * share.powf(f64::from(exponent)))
    }

    /// Prefers probabilities near a target; whether it could.
    pub fn prefer(&mut self, target: f64) -> bool {
        // Near the target the weight hardly tells the probability, and that must tell the bucket.
        if !self.is_plain() || self.worth.top != 0.0 || self.grid.is_finer_than(FINEST) {
            return false;
        }
        let total = self.total();
        // What is next to impossible has equal weights then, in the order of ids: one bucket.
        let last = BUCKETS as u32 - 1;
        let tail_begin = self.bucket_of_weight(LEAST_P * total);
        let in_tail = self.count(tail_begin..last + 1);
        let Some(above) = self.above(target).filter(|_| in_tail <= LIST_LEN) else { return false };
        let tail = if in_tail > 0 { self.members(tail_begin..last + 1) } else { Vec::new() };
        let next = self.first(above.len() + 1);
        let fall = Fall::from_nearest(target, next.iter().map(|c| c.p));
        self.whole.end = self.whole.end.min(tail_begin).max(self.whole.start);
        self.own.retain(|own| own.bucket < tail_begin);
        let is_above = |c: &Candidate| above.iter().any(|other| other.id == c.id);
        let weighed = |c: &Candidate| Candidate { p: fall.weight(c.p / total), ..*c };
        for own in self.own.iter_mut().filter(|own| !is_above(&own.candidate)) {
            own.candidate = weighed(&own.candidate);
        }
        self.own.extend(tail.iter().map(|c| Own { bucket: last, candidate: weighed(c) }));
        self.move_to_own(&above, |this, c| {
            let p = fall.weight(c.p / total);
            (this.bucket_of_fallen(p, &fall, total), p)
        });
        self.worth.fall = Some((fall, total));
        self.forget();
        true
    }

    /// The members above a probability, with their weights: there the order of adaptive-p turns round,
    /// so they get weights of their own. `None` if they may be too many for that.
    fn above(&mut self, target: f64) -> Option<Vec<Candidate>> {
        if target * (LIST_LEN as f64) <= 1.0 {
            return None;
        }
        if self.max_p() <= target {
            return Some(Vec::new());
        }
        let total = self.total();
        let end = self.bucket_of_weight(target * total) + 2;
        let mut above = self.members(0..end.min(BUCKETS as u32));
        above.retain(|c| c.p / total > target);
        (above.len() <= LIST_LEN).then_some(above)
    }

    fn reweigh_own(&mut self) {
        for Own { candidate, .. } in &mut self.own {
            candidate.p = self.worth.of(self.logits[candidate.id as usize]);
        }
        self.own.retain(|own| own.candidate.p > 0.0);
        self.forget();
    }

    fn forget(&mut self) {
        self.known = Known::Nothing;
        self.total = f64::NAN;
    }
}
