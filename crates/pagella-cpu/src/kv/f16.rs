//! Pages of binary16: keys `[D][256]`, values `[256][D]`.

use pagella_backend::PAGE_TOKENS;

use crate::ops::lanes::{load_part, store_part_f16};
use crate::simd::{Kernel, LANES, Simd};

/// Consecutive tokens of one head: where they come from and where in a page they go.
pub(super) struct Rows {
    /// First token's place in the page; `first + tokens` is at most [`PAGE_TOKENS`].
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// Elements per head.
    pub(super) width: usize,
    /// Elements from one token of the source to the next.
    pub(super) stride: usize,
}

/// Rounds keys to binary16 and writes them in columns, 16 × 16 elements at a time: a line of the
/// page is then touched once for 16 tokens.
///
/// # Safety
/// As for [`Simd`]; `source` holds the rows, `slot` points to a slot of keys.
#[inline(always)]
pub(super) unsafe fn store_keys<S: Simd>(rows: &Rows, source: *const f32, slot: *mut u16) {
    for t in (0..rows.tokens).step_by(LANES) {
        let tokens = (rows.tokens - t).min(LANES);
        for d in (0..rows.width).step_by(LANES) {
            let width = (rows.width - d).min(LANES);
            let mut tile = [[0u16; LANES]; LANES];
            // SAFETY: token and element indices stay inside the rows and the slot.
            unsafe {
                for (i, row) in tile.iter_mut().enumerate().take(tokens) {
                    let x = load_part::<S>(source.add((t + i) * rows.stride + d), width, 0.0);
                    S::store_f16(row.as_mut_ptr(), x);
                }
                for j in 0..width {
                    let column = slot.add((d + j) * PAGE_TOKENS + rows.first + t);
                    for (i, row) in tile.iter().enumerate().take(tokens) {
                        *column.add(i) = row[j];
                    }
                }
            }
        }
    }
}

/// Rounds values to binary16 and writes them in rows.
///
/// # Safety
/// As for [`Simd`]; `source` holds the rows, `slot` points to a slot of values.
#[inline(always)]
pub(super) unsafe fn store_values<S: Simd>(rows: &Rows, source: *const f32, slot: *mut u16) {
    for t in 0..rows.tokens {
        for d in (0..rows.width).step_by(LANES) {
            let n = rows.width - d;
            // SAFETY: token and element indices stay inside the rows and the slot.
            unsafe {
                let x = load_part::<S>(source.add(t * rows.stride + d), n, 0.0);
                store_part_f16::<S>(slot.add((rows.first + t) * rows.width + d), n, x);
            }
        }
    }
}

/// Widens `rows × width` elements to f32, whole vectors at a time.
pub(super) struct Widen<'a> {
    /// `[rows][source_step]`; 16 elements from any multiple of 16 below `width` are readable.
    pub(super) source: *const u16,
    pub(super) source_step: usize,
    /// `[rows][target_step]`.
    pub(super) target: &'a mut [f32],
    pub(super) target_step: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
}

impl Kernel for Widen<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let vectors = self.width.div_ceil(LANES);
        assert!(
            vectors * LANES <= self.target_step
                && self.rows * self.target_step <= self.target.len(),
            "the panel holds the rows"
        );
        for row in 0..self.rows {
            for i in 0..vectors {
                // SAFETY: the source by its contract, the target by the assertion.
                unsafe {
                    let x = S::load_f16(self.source.add(row * self.source_step + i * LANES));
                    S::store(self.target.as_mut_ptr().add(row * self.target_step + i * LANES), x);
                }
            }
        }
    }
}
