//! What happens to a head between its projection and the cache.

use pagella_arch::QkNormOrder;

use crate::ops::lanes::{load_part, store_part};
use crate::ops::norm::{NormArgs, normalize};
use crate::ops::rope::{RopeTable, rotate};
use crate::simd::{LANES, Simd};
use crate::threads::Shares;

/// First element of a head. Its task goes on from there to the same head of other tokens.
#[inline(always)]
pub(super) fn head_of(
    rows: &Shares<'_, f32>,
    token: usize,
    heads: usize,
    head: usize,
    width: usize,
) -> *mut f32 {
    let start = (token * heads + head) * width;
    rows.pointer(start..start + width)
}

/// What happens to a head after the clamp.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) norm: Option<NormArgs<'a>>,
    pub(super) rope: Option<(&'a RopeTable, usize)>,
    pub(super) order: QkNormOrder,
    /// Multiplier of the head, last.
    pub(super) growth: Option<f32>,
}

impl Turn<'_> {
    /// Nothing.
    pub(super) const NONE: Self =
        Turn { norm: None, rope: None, order: QkNormOrder::BeforeRope, growth: None };
}

/// Clips, norms, rotates and multiplies one head in place.
///
/// # Safety
/// As for [`Simd`]; `x` points to `width` elements, which norm and rotation fit into.
#[inline(always)]
pub(super) unsafe fn prepare_head<S: Simd>(
    x: *mut f32,
    width: usize,
    clip: Option<f32>,
    turn: &Turn<'_>,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        if let Some(limit) = clip {
            let (low, high) = (S::splat(-limit), S::splat(limit));
            for start in (0..width).step_by(LANES) {
                let v = load_part::<S>(x.add(start), width - start, 0.0);
                // The order of operands lets NaN through.
                store_part::<S>(x.add(start), width - start, S::min(high, S::max(low, v)));
            }
        }
        if let (Some(norm), QkNormOrder::BeforeRope) = (&turn.norm, turn.order) {
            normalize::<S>(norm, x, x);
        }
        if let Some((table, position)) = turn.rope {
            rotate::<S>(table, position, x);
        }
        if let (Some(norm), QkNormOrder::AfterRope) = (&turn.norm, turn.order) {
            normalize::<S>(norm, x, x);
        }
        if let Some(factor) = turn.growth {
            for start in (0..width).step_by(LANES) {
                let v = load_part::<S>(x.add(start), width - start, 0.0);
                store_part::<S>(x.add(start), width - start, S::mul(v, S::splat(factor)));
            }
        }
    }
}
