//! EXL3: 128 columns at a time, decoded from streams that lie side by side.
//!
//! A block is 128 columns, which are rotated together: 8 tiles of columns. Half of the lanes take the
//! upper half of the rows, so that 16 tiles are decoded at once and every shift is a constant.
//!
//! Canonical order of a sum: two halves of the packed rows; in each four segments of equal length,
//! one chain per segment, segments added ascending; then the lower half plus the upper one. The
//! rotation of the outputs is that of [`rotate_block`], then one product with the scale over √128.

mod decode;
mod gemm;
mod gemv;

use pagella_backend::BackendError;
use pagella_formats::Exl3Linear;
use pagella_formats::exl3::Codebook;
use pagella_formats::exl3::rotate::{ROTATED, ROTATION_SCALE};
use pagella_formats::exl3::tile::TILE;

use super::blocks::RowBlock;
use super::output::Output;
use super::own::{OwnKernel, OwnTask};
use super::relayout::{Laid, fill_tiles};
use super::rotate::{Rotation, rotate_block};
use super::weights::Weights;
use crate::memory::Aligned;
use crate::simd::{Isa, LANES, Simd};
use crate::threads::Pool;
use gemv::Exl3Gemv;

/// Segments of one half of the rows.
const SEGMENTS: usize = 4;
/// Tiles of columns in a block.
const BLOCK_TILES: usize = ROTATED / TILE;

/// An EXL3 matrix in streams of 16 tiles.
pub(super) struct Exl3Weights {
    /// `[block][pair][8 · bits][16]`: lanes 0 to 7 are the block's tiles in tile row `pair`, lanes 8 to
    /// 15 those in tile row `pair + pairs`.
    words: Aligned<u32>,
    bits: u8,
    codebook: Codebook,
    /// Tile rows of a half; a multiple of four.
    pairs: usize,
    /// Scales of the outputs over √128, padded to whole blocks.
    scales: Vec<f32>,
}

/// Lays out a matrix.
pub(super) fn lay_out(pool: &Pool, linear: &Exl3Linear<'_>) -> Result<Laid, BackendError> {
    let blocks = linear.padded_out / ROTATED;
    let pairs = linear.padded_in / TILE / 2;
    let tile_words = 8 * usize::from(linear.bits);
    let mut words = Aligned::zeroed(blocks * pairs * tile_words * LANES, "weights")?;
    fill_tiles(pool, blocks, &mut words, &|block, out: &mut [u32]| {
        for (pair, lines) in out.chunks_exact_mut(tile_words * LANES).enumerate() {
            for lane in 0..LANES {
                let tile = linear.tile(
                    pair + lane / BLOCK_TILES * pairs,
                    block * BLOCK_TILES + lane % BLOCK_TILES,
                );
                for (line, word) in lines.chunks_exact_mut(LANES).zip(tile.as_chunks::<4>().0) {
                    line[lane] = u32::from_le_bytes(*word);
                }
            }
        }
    })?;
    let scales = linear.svh.iter().map(|scale| scale * ROTATION_SCALE).collect();
    let weights =
        Exl3Weights { words, bits: linear.bits, codebook: linear.codebook, pairs, scales };
    Ok(Laid {
        weights: Weights::Own(Box::new(weights)),
        perm: Vec::new(),
        blocks: segments(linear.padded_in),
        rotation: Some(Rotation::new(linear.in_features, &linear.suh)),
    })
}

/// The segments of both halves as row blocks.
fn segments(rows: usize) -> Vec<RowBlock> {
    let segment = rows / (2 * SEGMENTS);
    let block = |index: usize| RowBlock {
        first_row: index * segment,
        rows: segment,
        bits: 0,
        group: 0,
        first_line: 0,
        ends_segment: true,
    };
    (0..2 * SEGMENTS).map(block).collect()
}

impl OwnKernel for Exl3Weights {
    fn tile_step(&self) -> usize {
        BLOCK_TILES
    }

    fn bytes(&self) -> usize {
        self.words.bytes() + 4 * self.scales.len()
    }

    fn run(&self, isa: Isa, task: &OwnTask<'_>) {
        let blocks = task.tiles.start / BLOCK_TILES..task.tiles.end.div_ceil(BLOCK_TILES);
        match task.input.shape.rows_per_tile {
            1 => isa.run(Exl3Gemv { weights: self, task, blocks }),
            _ => gemm::run(isa, self, task, blocks),
        }
    }
}

/// Calls `$body` with the width and the kind of codebook as constants.
macro_rules! with_stream {
    ($weights:expr, $b:ident, $c:ident => $body:expr) => {
        match $weights.codebook {
            Codebook::Mul1(_) => {
                with_stream!(@widths $weights, $b, $c, decode::BYTES => $body; 1 2 3 4 5 6 7 8)
            }
            Codebook::ThreeInst | Codebook::Mcg(_) => {
                with_stream!(@widths $weights, $b, $c, decode::HALVES => $body; 1 2 3 4 5 6 7 8)
            }
        }
    };
    (@widths $weights:expr, $b:ident, $c:ident, $kind:expr => $body:expr; $($bits:literal)*) => {
        match $weights.bits {
            $($bits => {
                const $b: usize = $bits;
                const $c: u8 = $kind;
                $body
            })*
            _ => unreachable!("the reader accepts 1 to 8 bits"),
        }
    };
}
use with_stream;

/// Rotates and scales the 128 sums of one token row and hands them on.
///
/// # Safety
/// As for [`Simd`]; the row and the block exist, and no other task writes them.
#[inline(always)]
unsafe fn finish<S: Simd>(
    weights: &Exl3Weights,
    output: &Output<'_>,
    (row, block): (usize, usize),
    sums: &mut [f32; ROTATED],
) {
    // SAFETY: promised by the caller; tiles beyond the outputs are left out.
    unsafe {
        rotate_block::<S>(sums);
        for (i, sums) in sums.chunks_exact(LANES).enumerate() {
            let tile = block * BLOCK_TILES + i;
            if tile * LANES < output.width {
                let scale = S::load(weights.scales[tile * LANES..].as_ptr());
                output.put::<S>(row, tile, S::mul(S::load(sums.as_ptr()), scale));
            }
        }
    }
}

#[cfg(test)]
mod tests;
