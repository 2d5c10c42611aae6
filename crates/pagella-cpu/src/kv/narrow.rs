//! Pages of floating-point elements narrower than f32: keys `[D][256]`, values `[256][D]`.
//!
//! Every such element is made of a binary16 value, which is what vectors are rounded to.

use pagella_backend::PAGE_TOKENS;

use crate::ops::lanes::load_part;
use crate::simd::{Kernel, LANES, Simd};

/// An element as it is stored.
pub(super) trait Narrow: Copy {
    /// Of the bits of a binary16 value.
    fn from_half(bits: u16) -> Self;

    /// Loads 16 elements.
    ///
    /// # Safety
    /// As for [`Simd`]; `p` points to 16 readable elements.
    unsafe fn load<S: Simd>(p: *const Self) -> S::F;

    /// Rounds and stores the first `n` lanes; all 16 if there are more.
    ///
    /// # Safety
    /// As for [`Simd`]; `p` points to `n` writable elements.
    unsafe fn store_part<S: Simd>(p: *mut Self, n: usize, v: S::F);
}

/// Consecutive tokens of one head: where they come from and where in a page they go.
pub(super) struct HeadRows {
    /// First token's place in the page; `first + tokens` is at most [`PAGE_TOKENS`].
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// Elements per head.
    pub(super) width: usize,
    /// Elements from one token of the source to the next.
    pub(super) stride: usize,
}

/// Rounds keys and writes them in columns, 16 × 16 elements at a time: a line of the
/// page is then touched once for 16 tokens.
///
/// # Safety
/// As for [`Simd`]; `source` holds the rows, `slot` points to a slot of keys.
#[inline(always)]
pub(super) unsafe fn store_keys<S: Simd, E: Narrow>(
    rows: &HeadRows,
    source: *const f32,
    slot: *mut E,
) {
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
                        *column.add(i) = E::from_half(row[j]);
                    }
                }
            }
        }
    }
}

/// Rounds values and writes them in rows.
///
/// # Safety
/// As for [`Simd`]; `source` holds the rows, `slot` points to a slot of values.
#[inline(always)]
pub(super) unsafe fn store_values<S: Simd, E: Narrow>(
    rows: &HeadRows,
    source: *const f32,
    slot: *mut E,
) {
    for t in 0..rows.tokens {
        for d in (0..rows.width).step_by(LANES) {
            let n = rows.width - d;
            // SAFETY: token and element indices stay inside the rows and the slot.
            unsafe {
                let x = load_part::<S>(source.add(t * rows.stride + d), n, 0.0);
                E::store_part::<S>(slot.add((rows.first + t) * rows.width + d), n, x);
            }
        }
    }
}

/// Widens `rows × width` elements to f32, whole vectors at a time.
pub(super) struct Widen<'a, E> {
    /// `[rows][source_step]`; 16 elements from any multiple of 16 below `width` are readable.
    pub(super) source: *const E,
    pub(super) source_step: usize,
    /// `[rows][target_step]`.
    pub(super) target: &'a mut [f32],
    pub(super) target_step: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
}

impl<E: Narrow> Kernel for Widen<'_, E> {
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
                    let x = E::load::<S>(self.source.add(row * self.source_step + i * LANES));
                    S::store(self.target.as_mut_ptr().add(row * self.target_step + i * LANES), x);
                }
            }
        }
    }
}
