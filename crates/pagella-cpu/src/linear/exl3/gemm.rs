//! More token rows: a panel of a block is decoded once and multiplied with all of them.
//!
//! Tiles of 16 lanes are those that decoding gives: lanes 0 to 7 are column `c` of the block's eight
//! tiles, lanes 8 to 15 column `c + 8`. Both halves of the rows are summed apart.

use std::cell::RefCell;
use std::ops::Range;

use pagella_formats::exl3::Codebook;
use pagella_formats::exl3::rotate::ROTATED;
use pagella_formats::exl3::tile::TILE;

use super::super::blocks::RowBlock;
use super::super::exact::ExactTile;
use super::super::own::OwnTask;
use super::super::run::with_rows;
use super::decode::{self, Book, Take, decode};
use super::{BLOCK_TILES, Exl3Weights, SEGMENTS, finish, with_stream};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Pairs of tile rows of a panel: 128 KiB, which stay in the second-level cache.
const PANEL_PAIRS: usize = 8;
/// Values of one column tile and half in a panel.
const PANEL_LEN: usize = PANEL_PAIRS * TILE * LANES;

#[derive(Default)]
struct Scratch {
    /// `[half][column tile][row][16]`.
    panel: Vec<f32>,
    /// `[token tile][half][column tile][row][16]`: chains of the current segments.
    acc: Vec<f32>,
    /// The same: finished segments.
    total: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs one task block by block.
pub(super) fn run(isa: Isa, weights: &Exl3Weights, task: &OwnTask<'_>, blocks: Range<usize>) {
    SCRATCH.with(|cell| {
        let scratch = &mut *cell.borrow_mut();
        scratch.panel.resize(2 * BLOCK_TILES * PANEL_LEN, 0.0);
        for block in blocks {
            run_block(isa, weights, task, block, scratch);
        }
    });
}

fn run_block(
    isa: Isa,
    weights: &Exl3Weights,
    task: &OwnTask<'_>,
    block: usize,
    scratch: &mut Scratch,
) {
    let mr = task.input.shape.rows_per_tile;
    let (pairs, segment) = (weights.pairs, weights.pairs / SEGMENTS);
    let (half_rows, tile_len) = (pairs * TILE, 2 * pairs * TILE * mr);
    let sums = task.token_tiles.len() * 2 * BLOCK_TILES * mr * LANES;
    for buffer in [&mut scratch.acc, &mut scratch.total] {
        buffer.clear();
        buffer.resize(sums, 0.0);
    }
    let mut first = 0;
    while first < pairs {
        // A panel lies inside a segment.
        let end = pairs.min(first + PANEL_PAIRS).min((first / segment + 1) * segment);
        isa.run(Panel { weights, block, pairs: first..end, out: &mut scratch.panel });
        for (index, token_tile) in task.token_tiles.clone().enumerate() {
            let values = &task.input.values[token_tile * tile_len..(token_tile + 1) * tile_len];
            for slot in 0..2 * BLOCK_TILES {
                let blocks = &[RowBlock {
                    first_row: slot / BLOCK_TILES * half_rows + first * TILE,
                    rows: (end - first) * TILE,
                    bits: 0,
                    group: 0,
                    first_line: 0,
                    ends_segment: end.is_multiple_of(segment),
                }];
                let panel = &scratch.panel[slot * PANEL_LEN..(slot + 1) * PANEL_LEN];
                let at = (index * 2 * BLOCK_TILES + slot) * mr * LANES;
                let acc = &mut scratch.acc[at..at + mr * LANES];
                let total = &mut scratch.total[at..at + mr * LANES];
                match mr {
                    2 => isa.run(ExactTile::<2> { panel, blocks, values, acc, total }),
                    _ => with_rows!(mr, MR => {
                        isa.run(ExactTile::<MR> { panel, blocks, values, acc, total })
                    }),
                }
            }
        }
        first = end;
    }
    isa.run(Finish { weights, task, block, total: &scratch.total });
}

/// Decodes some pairs of tile rows of a block.
struct Panel<'a> {
    weights: &'a Exl3Weights,
    block: usize,
    pairs: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Panel<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let out = self.out.as_mut_ptr();
        // SAFETY: the pairs exist, and `out` holds a panel of them.
        unsafe { with_stream!(self.weights, B, C => self.decode::<S, B, C>(out)) }
    }
}

impl Panel<'_> {
    /// # Safety
    /// As for [`Simd`]; `out` holds a panel, `B` and `C` are width and codebook.
    #[inline(always)]
    unsafe fn decode<S: Simd, const B: usize, const C: u8>(&self, out: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe {
            let book = Book::<S>::new(self.weights.codebook);
            for (index, pair) in self.pairs.clone().enumerate() {
                let at = (self.block * self.weights.pairs + pair) * 8 * B * LANES;
                let words = self.weights.words.as_ptr().add(at);
                for c in 0..8 {
                    let low = out.add(c * PANEL_LEN + index * TILE * LANES);
                    let high = low.add(BLOCK_TILES * PANEL_LEN);
                    decode::<S, B, C>(book, words, c, &mut Rows { low, high });
                }
            }
        }
    }
}

/// Rows of a column tile in the panel, one in either half.
struct Rows {
    low: *mut f32,
    high: *mut f32,
}

impl<S: Simd> Take<S> for Rows {
    #[inline(always)]
    unsafe fn take(&mut self, u: usize, low: S::F, high: S::F) {
        // SAFETY: 16 rows of 16 lanes follow both pointers.
        unsafe {
            S::store(self.low.add(u * LANES), S::low_halves(low, high));
            S::store(self.high.add(u * LANES), S::high_halves(low, high));
        }
    }
}

/// Hands the sums of a block to the output.
struct Finish<'a> {
    weights: &'a Exl3Weights,
    task: &'a OwnTask<'a>,
    block: usize,
    total: &'a [f32],
}

impl Kernel for Finish<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let shape = self.task.input.shape;
        let mr = shape.rows_per_tile;
        for (index, token_tile) in self.task.token_tiles.clone().enumerate() {
            for row in 0..mr.min(shape.m - token_tile * mr) {
                let mut sums = [0.0; ROTATED];
                for c in 0..BLOCK_TILES {
                    let at = |half: usize| {
                        let slot = (index * 2 + half) * BLOCK_TILES + c;
                        &self.total[(slot * mr + row) * LANES..][..LANES]
                    };
                    for (lane, (low, high)) in at(0).iter().zip(at(1)).enumerate() {
                        let column = c + lane / BLOCK_TILES * BLOCK_TILES;
                        sums[lane % BLOCK_TILES * TILE + column] = low + high;
                    }
                }
                let at = (token_tile * mr + row, self.block);
                // SAFETY: the columns and rows are this task's own.
                unsafe { finish::<S>(self.weights, self.task.output, at, &mut sums) };
            }
        }
    }
}
