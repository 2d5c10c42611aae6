//! Pages of binary32, for measurements: keys `[D][256]`, values `[256][D]`, nothing rounded.

use pagella_backend::PAGE_TOKENS;

use super::narrow::HeadRows;
use crate::simd::LANES;

/// Writes keys in columns.
///
/// # Safety
/// `source` holds the rows, `slot` points to a slot of keys.
pub(super) unsafe fn store_keys(rows: &HeadRows, source: *const f32, slot: *mut f32) {
    for t in 0..rows.tokens {
        for d in 0..rows.width {
            // SAFETY: token and element indices stay inside the rows and the slot.
            unsafe {
                *slot.add(d * PAGE_TOKENS + rows.first + t) = *source.add(t * rows.stride + d)
            };
        }
    }
}

/// Writes values in rows.
///
/// # Safety
/// `source` holds the rows, `slot` points to a slot of values.
pub(super) unsafe fn store_values(rows: &HeadRows, source: *const f32, slot: *mut f32) {
    for t in 0..rows.tokens {
        // SAFETY: token and element indices stay inside the rows and the slot.
        unsafe {
            let target = slot.add((rows.first + t) * rows.width);
            std::ptr::copy_nonoverlapping(source.add(t * rows.stride), target, rows.width);
        }
    }
}

/// Copies the first `tokens` tokens of a slot of keys to a panel `[D][256]`.
pub(super) fn copy_keys(slot: *const f32, width: usize, tokens: usize, panel: &mut [f32]) {
    for (d, row) in panel.chunks_exact_mut(PAGE_TOKENS).enumerate().take(width) {
        // SAFETY: a slot of keys holds `width` rows of 256 tokens; `tokens` is at most that.
        unsafe { copy_row(slot.add(d * PAGE_TOKENS), &mut row[..tokens]) };
    }
}

/// Copies the first `tokens` tokens of a slot of values to a panel `[256][padded]`.
pub(super) fn copy_values(slot: *const f32, width: usize, tokens: usize, panel: &mut [f32]) {
    let rows = panel.chunks_exact_mut(width.next_multiple_of(LANES));
    for (token, row) in rows.enumerate().take(tokens) {
        // SAFETY: a slot of values holds 256 rows of `width` elements.
        unsafe { copy_row(slot.add(token * width), &mut row[..width]) };
    }
}

/// # Safety
/// `source` holds as many elements as `target`.
unsafe fn copy_row(source: *const f32, target: &mut [f32]) {
    // SAFETY: promised by the caller; the cache and a thread's panel never overlap.
    unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
}
