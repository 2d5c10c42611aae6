//! Wide activations: a packed row as 15-bit integers with one scale per row block.

use super::blocks::{BLOCK_ROWS, RowBlock};
use crate::simd::{Kernel, LANES, Simd};

/// Largest integer of a wide activation; 127·256 + 127, so that it also splits into two bytes.
const WIDE_MAX: f32 = 32639.0;
/// Blocks whose largest magnitude is below this count as zero.
const WIDE_TINY: f32 = 1e-34;

/// Quantises one packed row into its lane of a tile.
///
/// The tile is as in [`super::input::WideInput`], all zeros beforehand.
pub(crate) struct Quantize<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) blocks: &'a [RowBlock],
    /// Lanes of the tile.
    pub(crate) width: usize,
    pub(crate) lane: usize,
    /// Whether the tile is for a GEMV, whose kernels may take bytes.
    pub(crate) direct: bool,
    pub(crate) pairs: &'a mut [i32],
    pub(crate) scales: &'a mut [f32],
    pub(crate) sums: &'a mut [i32],
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (index, block) in self.blocks.iter().enumerate() {
            let x = &self.x[block.first_row..block.first_row + block.rows];
            // SAFETY: packed blocks hold whole multiples of 32 rows; vectors stay inside `x`.
            let (largest, finite) = unsafe { magnitude::<S>(x) };
            let at = index * self.width + self.lane;
            if !finite {
                // Poisons every output of the row: a NaN must never be hidden.
                self.scales[at] = f32::NAN;
                continue;
            }
            if largest < WIDE_TINY {
                continue;
            }
            let factor = WIDE_MAX / largest;
            let bytes = self.direct && block.bits <= S::BYTE_BITS_MAX[self.width.ilog2() as usize];
            let mut sum = 0;
            for (b, rows) in x.chunks_exact(BLOCK_ROWS).enumerate() {
                let mut q = [0i32; BLOCK_ROWS];
                // SAFETY: 32 readable floats and 32 writable integers.
                unsafe {
                    for half in [0, LANES] {
                        let v = S::mul(S::load(rows.as_ptr().add(half)), S::splat(factor));
                        S::store_i(q.as_mut_ptr().add(half), S::round_i(v));
                    }
                }
                sum += q.iter().sum::<i32>();
                let first = (block.first_row + b * BLOCK_ROWS) / 2 * self.width + self.lane;
                for (i, quad) in q.as_chunks::<4>().0.iter().enumerate() {
                    let even = first + 2 * i * self.width;
                    let words = if bytes { halves(quad) } else { pairs(quad) };
                    (self.pairs[even], self.pairs[even + self.width]) = words;
                }
            }
            self.scales[at] = largest / WIDE_MAX;
            self.sums[at] = sum;
        }
    }
}

/// Four rows as two pairs of 16 bits.
#[inline(always)]
fn pairs(q: &[i32; 4]) -> (i32, i32) {
    ((q[0] & 0xFFFF) | q[2] << 16, (q[1] & 0xFFFF) | q[3] << 16)
}

/// Four rows as four high bytes and four low ones, both signed: `256 · high + low`.
#[inline(always)]
fn halves(q: &[i32; 4]) -> (i32, i32) {
    let high = q.map(|q| ((q + 128) >> 8) as u8);
    (i32::from_le_bytes(high), i32::from_le_bytes(q.map(|q| q as u8)))
}

/// Largest magnitude, and whether all elements are finite.
///
/// # Safety
/// As for [`Simd`]; the length is a multiple of 16.
#[inline(always)]
unsafe fn magnitude<S: Simd>(x: &[f32]) -> (f32, bool) {
    // SAFETY: whole vectors inside `x`.
    unsafe {
        let mut largest = S::splat(0.0);
        let mut poison = S::splat(0.0);
        for at in (0..x.len()).step_by(LANES) {
            let v = S::load(x.as_ptr().add(at));
            largest = S::max(S::abs(v), largest);
            poison = S::fma(v, S::splat(0.0), poison);
        }
        (S::max_lane(largest), !S::sum(poison).is_nan())
    }
}
