//! One token row: every stream is decoded once, from front to back, and nothing is stored.

use std::ops::Range;

use pagella_formats::exl3::Codebook;
use pagella_formats::exl3::rotate::ROTATED;
use pagella_formats::exl3::tile::TILE;

use super::super::own::OwnTask;
use super::decode::{self, Book, Take, decode};
use super::{BLOCK_TILES, Exl3Weights, SEGMENTS, finish, with_stream};
use crate::simd::{Kernel, LANES, Simd};

/// A token row times some blocks.
pub(super) struct Exl3Gemv<'a> {
    pub(super) weights: &'a Exl3Weights,
    pub(super) task: &'a OwnTask<'a>,
    pub(super) blocks: Range<usize>,
}

impl Kernel for Exl3Gemv<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for block in self.blocks.clone() {
            // SAFETY: the block exists; the width and the codebook are those of the weights.
            unsafe { with_stream!(self.weights, B, C => self.block::<S, B, C>(block)) }
        }
    }
}

impl Exl3Gemv<'_> {
    /// # Safety
    /// As for [`Simd`]; the block exists, `B` and `C` are width and codebook.
    #[inline(always)]
    unsafe fn block<S: Simd, const B: usize, const C: u8>(&self, block: usize) {
        // SAFETY: `words` holds `8 · B` lines for every block and pair, the input all packed rows.
        unsafe {
            let weights = self.weights;
            let (pairs, zero) = (weights.pairs, S::splat(0.0));
            let book = Book::<S>::new(weights.codebook);
            let x = self.task.input.values.as_ptr();
            let mut pair = weights.words.as_ptr().add(block * pairs * 8 * B * LANES);
            let mut total = [zero; TILE];
            let mut acc = [zero; TILE];
            for p in 0..pairs {
                let mut rows = [zero; TILE];
                for (u, row) in rows.iter_mut().enumerate() {
                    let x = x.add(p * TILE + u);
                    *row = S::splat_halves(*x, *x.add(pairs * TILE));
                }
                for c in 0..8 {
                    let mut chains = Chains::<S> { rows: &rows, low: acc[c], high: acc[c + 8] };
                    decode::<S, B, C>(book, pair, c, &mut chains);
                    (acc[c], acc[c + 8]) = (chains.low, chains.high);
                }
                pair = pair.add(8 * B * LANES);
                if (p + 1).is_multiple_of(pairs / SEGMENTS) {
                    for (total, acc) in total.iter_mut().zip(&mut acc) {
                        *total = S::add(*total, *acc);
                        *acc = zero;
                    }
                }
            }
            let mut sums = [0.0; ROTATED];
            for (column, total) in total.into_iter().enumerate() {
                let mut lanes = [0.0; LANES];
                S::store(lanes.as_mut_ptr(), total);
                for tile in 0..BLOCK_TILES {
                    sums[tile * TILE + column] = lanes[tile] + lanes[BLOCK_TILES + tile];
                }
            }
            finish::<S>(weights, self.task.output, (0, block), &mut sums);
        }
    }
}

/// The sums of two columns.
struct Chains<'a, S: Simd> {
    rows: &'a [S::F; TILE],
    low: S::F,
    high: S::F,
}

impl<S: Simd> Take<S> for Chains<'_, S> {
    #[inline(always)]
    unsafe fn take(&mut self, u: usize, low: S::F, high: S::F) {
        // SAFETY: register operations only.
        unsafe {
            self.low = S::fma(self.rows[u], low, self.low);
            self.high = S::fma(self.rows[u], high, self.high);
        }
    }
}
