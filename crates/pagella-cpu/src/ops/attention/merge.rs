//! Putting spans together.
//!
//! A state holds one query's result over some keys: `[padded]` weighted values (not yet divided),
//! the maximum, the sum of exponentials, and padding to a cache line. A sum of 0 says that nothing
//! was seen; any real sum is at least 1.

use crate::ops::lanes::{load_part, store_part};
use crate::simd::{Isa, Kernel, LANES, Simd, math};

/// Elements of a state besides the padded values.
pub(super) const STATE_TAIL: usize = LANES;

/// Forgets everything in `states` of `stride` elements.
pub(super) fn clear(states: &mut [f32], stride: usize) {
    for state in states.chunks_exact_mut(stride) {
        state[stride - STATE_TAIL + 1] = 0.0;
    }
}

/// Merges `part` into `state`; `part` has seen something.
pub(super) fn absorb(isa: Isa, state: &mut [f32], part: &[f32]) {
    assert!(state.len() == part.len() && part.len() > STATE_TAIL, "states of one kind");
    let tail = part.len() - STATE_TAIL;
    if state[tail + 1] == 0.0 {
        state.copy_from_slice(part);
        return;
    }
    isa.run(Absorb { state, part });
}

/// Divides the values of `state`, from `first` on, by its sum, to which `sink` is one more logit.
pub(super) fn finish(isa: Isa, state: &[f32], first: usize, sink: Option<f32>, out: &mut [f32]) {
    assert!(first + out.len() + STATE_TAIL <= state.len(), "a state holds the output");
    isa.run(Finish { state, first, sink, out });
}

struct Absorb<'a> {
    state: &'a mut [f32],
    /// As long as `state`, which is a multiple of 16 plus [`STATE_TAIL`].
    part: &'a [f32],
}

impl Kernel for Absorb<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Absorb { state, part } = self;
        let tail = part.len() - STATE_TAIL;
        let (old, new) = (state[tail], part[tail]);
        let top = if old > new { old } else { new };
        // SAFETY: offsets up to `tail`, a multiple of 16, are inside both slices.
        unsafe {
            let keep = math::exp::<S>(S::splat(old - top));
            let take = math::exp::<S>(S::splat(new - top));
            for d in (0..tail).step_by(LANES) {
                let kept = S::mul(S::load(state.as_ptr().add(d)), keep);
                let sum = S::fma(S::load(part.as_ptr().add(d)), take, kept);
                S::store(state.as_mut_ptr().add(d), sum);
            }
            let kept = S::mul(S::splat(state[tail + 1]), keep);
            let sum = S::fma(S::splat(part[tail + 1]), take, kept);
            store_part::<S>(state.as_mut_ptr().add(tail + 1), 1, sum);
        }
        state[tail] = top;
    }
}

struct Finish<'a> {
    state: &'a [f32],
    first: usize,
    sink: Option<f32>,
    /// Ends at least [`STATE_TAIL`] before `state` does.
    out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Finish { state, first, sink, out } = self;
        let tail = state.len() - STATE_TAIL;
        let (len, top, sum) = (out.len(), state[tail], state[tail + 1]);
        // SAFETY: `d + min(len − d, 16)` is inside both slices.
        unsafe {
            // A sink far above all scores makes the sum infinite and the result 0, as it should be.
            let sum = match sink {
                Some(sink) => S::add(S::splat(sum), math::exp::<S>(S::splat(sink - top))),
                None => S::splat(sum),
            };
            for d in (0..len).step_by(LANES) {
                let x = load_part::<S>(state.as_ptr().add(first + d), len - d, 0.0);
                store_part::<S>(out.as_mut_ptr().add(d), len - d, S::div(x, sum));
            }
        }
    }
}
