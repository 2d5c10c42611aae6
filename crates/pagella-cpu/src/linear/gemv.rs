//! One or two token rows times a range of tiles: the walk that both arithmetics share.
//!
//! Four tiles go in lockstep, each a sequential stream of weights; their chains are independent.
//! The canonical order is kept here: blocks ascending, segments added as they end.

use std::ops::Range;

use super::blocks::RowBlock;
use super::output::Output;
use crate::simd::{Kernel, Simd};

/// How one arithmetic adds a row block to the chains of `M` token rows and `T` tiles.
pub(crate) trait GemvBlock<const M: usize> {
    /// Adds block `index` of tiles `tile..tile + T`.
    ///
    /// # Safety
    /// As for [`Simd`]; the tiles and the block exist.
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        tile: usize,
        index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    );
}

/// `M` token rows times a range of tiles.
pub(crate) struct Gemv<'a, const M: usize, B> {
    pub(crate) arithmetic: B,
    /// Row blocks of the linear.
    pub(crate) blocks: &'a [RowBlock],
    pub(crate) tiles: Range<usize>,
    pub(crate) output: &'a Output<'a>,
}

impl<const M: usize, B: GemvBlock<M>> Kernel for Gemv<'_, M, B> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut tile = self.tiles.start;
        // SAFETY: all tiles of the range exist; the output columns are this task's own.
        unsafe {
            if S::GEMV_TILES >= 4 {
                while tile + 4 <= self.tiles.end {
                    self.tiles_at::<S, 4>(tile);
                    tile += 4;
                }
            }
            while tile < self.tiles.end {
                self.tiles_at::<S, 1>(tile);
                tile += 1;
            }
        }
    }
}

impl<const M: usize, B: GemvBlock<M>> Gemv<'_, M, B> {
    /// # Safety
    /// As for [`Simd`]; tiles `tile..tile + T` exist and belong to this task.
    #[inline(always)]
    unsafe fn tiles_at<S: Simd, const T: usize>(&self, tile: usize) {
        // SAFETY: the block table was built for these tiles.
        unsafe {
            let zero = S::splat(0.0);
            let mut total = [[zero; T]; M];
            let mut acc = [[zero; T]; M];
            for (index, block) in self.blocks.iter().enumerate() {
                self.arithmetic.add::<S, T>(tile, index, block, &mut acc);
                if block.ends_segment {
                    for (total, acc) in total.iter_mut().zip(&mut acc) {
                        for (total, acc) in total.iter_mut().zip(acc) {
                            *total = S::add(*total, *acc);
                            *acc = zero;
                        }
                    }
                }
            }
            for (m, sums) in total.into_iter().enumerate() {
                for (t, sum) in sums.into_iter().enumerate() {
                    self.output.put::<S>(m, tile + t, sum);
                }
            }
        }
    }
}
