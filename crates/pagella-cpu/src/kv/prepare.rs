//! What happens to a head between its projection and the cache.

use crate::ops::lanes::{load_part, store_part};
use crate::ops::norm::{NormArgs, normalize};
use crate::ops::rope::{RopeTable, rotate};
use crate::simd::{LANES, Simd};
use crate::threads::Shares;

/// First element of a head.
///
/// # Safety
/// The head belongs to the caller's task alone.
#[inline(always)]
pub(super) unsafe fn head_of(
    rows: &Shares<'_, f32>,
    token: usize,
    heads: usize,
    head: usize,
    width: usize,
) -> *mut f32 {
    let start = (token * heads + head) * width;
    // SAFETY: disjoint by the caller, in bounds by the assertion inside.
    unsafe { rows.part(start..start + width).as_mut_ptr() }
}

/// Clips, norms and rotates one head in place.
///
/// # Safety
/// As for [`Simd`]; `x` points to `width` elements, which norm and rotation fit into.
#[inline(always)]
pub(super) unsafe fn prepare_head<S: Simd>(
    x: *mut f32,
    width: usize,
    clip: Option<f32>,
    norm: Option<NormArgs<'_>>,
    rope: Option<(&RopeTable, usize)>,
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
        if let Some(norm) = norm {
            normalize::<S>(&norm, x, x);
        }
        if let Some((table, position)) = rope {
            rotate::<S>(table, position, x);
        }
    }
}
