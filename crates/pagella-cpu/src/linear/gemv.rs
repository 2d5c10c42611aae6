//! A few token rows times a range of tiles: the walk that both arithmetics share.
//!
//! Some tiles go in lockstep, each a sequential stream of weights; their chains are independent. With
//! several tiles of token rows each takes its turn at the same weights, which are in the cache then.
//! The canonical order is kept here: blocks ascending, segments added as they end.

use std::ops::Range;

use super::blocks::RowBlock;
use super::input::Shape;
use super::output::Output;
use crate::simd::{Kernel, Simd};

/// How far ahead of the reading position weights are fetched, in bytes.
const AHEAD_BYTES: usize = 4096;
/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Fetches `lines` cache lines of `T` tiles of `tile_bytes` each, some way ahead of offset `at` in all
/// of them. Beyond the end of a tile comes the next one that the same stream reads, `T` tiles on.
///
/// # Safety
/// As for [`Simd`]. Fetching may run past the end of `tiles`.
#[inline(always)]
pub(crate) unsafe fn fetch_ahead<S: Simd, const T: usize>(
    tiles: *const u8,
    tile_bytes: usize,
    at: usize,
    lines: usize,
) {
    let ahead = at + AHEAD_BYTES;
    let ahead = if ahead >= tile_bytes { ahead + (T - 1) * tile_bytes } else { ahead };
    for t in 0..T {
        for line in 0..lines {
            let place = tiles.wrapping_add(ahead + t * tile_bytes + line * LINE_BYTES);
            // SAFETY: passed on to the caller.
            unsafe { S::prefetch(place) };
        }
    }
}

/// What a GEMV does with a weight.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Multiplies a code with integers.
    Wide,
    /// Makes a code the format's value.
    Exact,
    /// Takes it as it is.
    Plain,
}

/// Registers of sums that plain weights need: so many chains hide how long one addition takes.
const PLAIN_SUMS: usize = 8;

/// Tiles that go in lockstep: 1, 2 or 4.
const fn tiles_together<S: Simd>(kind: Kind, rows: usize) -> usize {
    match (kind, S::REGISTERS) {
        (Kind::Wide, _) => S::WIDE_TILES[rows.ilog2() as usize],
        (Kind::Plain, registers) => match PLAIN_SUMS / (registers * rows) {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        },
        (Kind::Exact, 1) => 4,
        // Scales, zero points and sums of more than one would not fit.
        (Kind::Exact, _) => 1,
    }
}

/// How one arithmetic adds a row block to the chains of `M` token rows and `T` tiles.
pub(crate) trait GemvBlock<const M: usize> {
    /// Decides how many tiles go in lockstep.
    const KIND: Kind;

    /// Adds block `index` of tiles `tile..tile + T`, times the token rows of tile `token_tile`.
    ///
    /// # Safety
    /// As for [`Simd`]; the tiles and the block exist.
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        token_tile: usize,
        tile: usize,
        index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    );
}

/// Token rows in tiles of `M` times a range of tiles.
pub(crate) struct Gemv<'a, const M: usize, B> {
    pub(crate) arithmetic: B,
    /// Row blocks of the linear.
    pub(crate) blocks: &'a [RowBlock],
    pub(crate) tiles: Range<usize>,
    /// Of the token rows.
    pub(crate) shape: Shape,
    pub(crate) output: &'a Output<'a>,
}

impl<const M: usize, B: GemvBlock<M>> Kernel for Gemv<'_, M, B> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut tile = self.tiles.start;
        // SAFETY: all tiles of the range exist; the output columns are this task's own.
        unsafe {
            // Constants, so that nothing is compiled that is not used.
            if const { tiles_together::<S>(B::KIND, M) == 4 } {
                while tile + 4 <= self.tiles.end {
                    self.tiles_at::<S, 4>(tile);
                    tile += 4;
                }
            }
            if const { tiles_together::<S>(B::KIND, M) == 2 } {
                while tile + 2 <= self.tiles.end {
                    self.tiles_at::<S, 2>(tile);
                    tile += 2;
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
        for token_tile in 0..self.shape.tiles() {
            // SAFETY: passed on to the caller.
            unsafe { self.tokens_at::<S, T>(token_tile, tile) };
        }
    }

    /// # Safety
    /// As for [`Gemv::tiles_at`]; `token_tile` exists.
    #[inline(always)]
    unsafe fn tokens_at<S: Simd, const T: usize>(&self, token_tile: usize, tile: usize) {
        // SAFETY: the block table was built for these tiles; rows beyond `m` are not written.
        unsafe {
            let zero = S::splat(0.0);
            let mut total = [[zero; T]; M];
            let mut acc = [[zero; T]; M];
            for (index, block) in self.blocks.iter().enumerate() {
                self.arithmetic.add::<S, T>(token_tile, tile, index, block, &mut acc);
                if block.ends_segment {
                    for (total, acc) in total.iter_mut().zip(&mut acc) {
                        for (total, acc) in total.iter_mut().zip(acc) {
                            *total = S::add(*total, *acc);
                            *acc = zero;
                        }
                    }
                }
            }
            let first = token_tile * M;
            for (m, sums) in total.into_iter().enumerate().take(self.shape.m - first) {
                for (t, sum) in sums.into_iter().enumerate() {
                    self.output.put::<S>(first + m, tile + t, sum);
                }
            }
        }
    }
}
