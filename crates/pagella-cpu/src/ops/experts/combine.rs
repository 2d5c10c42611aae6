//! The sum over a row's experts, and its addition to the residual.

use pagella_backend::{BackendError, MoeOp};

use super::route::Choices;
use super::shares::ExpertShares;
use crate::Tensor;
use crate::linear::Machine;
use crate::ops::lanes::{load_part, store_part};
use crate::simd::{Kernel, LANES, Simd};
use crate::threads::Shares;

/// `residual += scale · Σ w · out[pair]` for the first `tokens` rows. `out`: `[pairs, hidden]`.
pub(super) fn combine(
    machine: &Machine<'_>,
    op: &MoeOp,
    tokens: usize,
    choices: &Choices,
    shares: &ExpertShares,
    out: &[f32],
    residual: &mut Tensor,
) -> Result<(), BackendError> {
    let (width, k) = (op.hidden, op.experts_per_token);
    let rows = Shares::new(&mut residual.data);
    machine.pool.run(tokens, &|row| {
        // SAFETY: every task has its own row.
        let sum = unsafe { rows.part(row * width..(row + 1) * width) };
        let (pairs, weights) = (shares.of_row(op, row), &choices.weights[row * k..(row + 1) * k]);
        machine.isa.run(Combine { out, pairs, weights, scale: op.scale, sum });
    })
}

/// One row. `out` holds `pair + 1` rows as long as `sum` for every pair.
struct Combine<'a> {
    out: &'a [f32],
    pairs: &'a [u32],
    /// One per pair.
    weights: &'a [f32],
    scale: f32,
    sum: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.sum.len();
        let sum = self.sum.as_mut_ptr();
        for start in (0..width).step_by(LANES) {
            let n = width - start;
            // SAFETY: `start + min(n, 16)` stays within the row of every pair and of the sum.
            unsafe {
                let mut mixed = S::splat(0.0);
                for (pair, weight) in self.pairs.iter().zip(self.weights) {
                    let first = *pair as usize * width;
                    let row = self.out[first..first + width].as_ptr();
                    let y = load_part::<S>(row.add(start), n, 0.0);
                    mixed = S::fma(S::splat(*weight), y, mixed);
                }
                let old = load_part::<S>(sum.add(start), n, 0.0);
                store_part::<S>(sum.add(start), n, S::fma(S::splat(self.scale), mixed, old));
            }
        }
    }
}
