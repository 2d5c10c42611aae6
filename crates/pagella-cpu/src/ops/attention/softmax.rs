//! Soft-cap, mask, maximum, exponentials and their sum, for the scores of one page.

use std::ops::Range;

use crate::simd::{Isa, Kernel, LANES, Simd, math};

/// Lane numbers, to compare with the borders of a mask.
const LANE: [f32; LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// One query's scores of one page, replaced by their exponentials.
pub(super) struct Softmax<'a> {
    /// Scores of whole vectors; every index of `computed` and `seen` is inside.
    pub(super) scores: &'a mut [f32],
    /// Scores that were computed, starting and ending at multiples of 16.
    pub(super) computed: Range<usize>,
    /// Scores that count, inside `computed`; all others become an exact 0.
    pub(super) seen: Range<usize>,
    pub(super) softcap: Option<f32>,
}

impl Softmax<'_> {
    /// The maximum and the sum of exponentials; the sum is 0 when nothing counts.
    pub(super) fn run(self, isa: Isa) -> (f32, f32) {
        assert!(self.computed.end <= self.scores.len(), "scores are there");
        if self.seen.is_empty() {
            self.scores[self.computed].fill(0.0);
            return (f32::NEG_INFINITY, 0.0);
        }
        isa.run(self)
    }
}

impl Kernel for Softmax<'_> {
    type Out = (f32, f32);
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (f32, f32) {
        let scores = self.scores.as_mut_ptr();
        let Range { start, end } = self.computed;
        // SAFETY: vectors from `start` to `end`, both multiples of 16, are inside the slice.
        unsafe {
            let hidden = S::splat(f32::NEG_INFINITY);
            let mut top = hidden;
            for t in (start..end).step_by(LANES) {
                let mut x = S::load(scores.add(t));
                if let Some(cap) = self.softcap {
                    x = math::softcap::<S>(x, S::splat(cap));
                }
                if t < self.seen.start || t + LANES > self.seen.end {
                    let place = S::add(S::load(LANE.as_ptr()), S::splat(t as f32));
                    x = S::select_lt(place, S::splat(self.seen.start as f32), hidden, x);
                    x = S::select_lt(place, S::splat(self.seen.end as f32), x, hidden);
                }
                S::store(scores.add(t), x);
                top = S::max(top, x);
            }
            let top = S::max_lane(top);
            let mut sum = S::splat(0.0);
            for t in (start..end).step_by(LANES) {
                let e = math::exp::<S>(S::sub(S::load(scores.add(t)), S::splat(top)));
                S::store(scores.add(t), e);
                sum = S::add(sum, e);
            }
            (top, S::sum(sum))
        }
    }
}
