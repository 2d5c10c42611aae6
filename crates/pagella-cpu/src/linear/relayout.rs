//! From a file's linear to tiles: each worker fills its own tiles, nothing is held twice.
//!
//! Weights that the packed kernels cannot represent exactly (a product that overflows binary16, a
//! group that is no multiple of 32 rows) are expanded to their exact values instead.

use half::f16;
use pagella_backend::BackendError;
use pagella_formats::exl2::scale::group_step;
use pagella_formats::{Dtype, Exl2Linear, Linear, PlainLinear};

use super::blocks::{BLOCK_ROWS, RowBlock, cut};
use super::pack::{Line, pack_quads, stream_quad};
use super::rotate::Rotation;
use super::weights::{Packed, Plain, Scales, Weights};
use super::{exl3, integer, small_float};
use crate::memory::Aligned;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::{Pool, Shares};

/// Smallest magnitude that binary16 rounds to infinity.
pub(super) const F16_OVERFLOW: f32 = 65520.0;

/// A linear's weights and the order in which they want their input.
pub(crate) struct Laid {
    pub(crate) weights: Weights,
    pub(crate) perm: Vec<u32>,
    pub(crate) blocks: Vec<RowBlock>,
    /// What happens to an input first.
    pub(crate) rotation: Option<Rotation>,
}

/// Lays out any linear.
pub(crate) fn lay_out(isa: Isa, pool: &Pool, source: &Linear<'_>) -> Result<Laid, BackendError> {
    match source {
        Linear::Exl2(linear) if exl2_fits(linear) => exl2(isa, pool, linear),
        Linear::Exl2(linear) => {
            expanded(linear.in_features, linear.out_features, &linear.dequantize())
        }
        Linear::Gptq(linear) => integer::lay_out(isa, pool, linear),
        Linear::Plain(linear) => plain(pool, linear),
        Linear::Exl3(linear) => exl3::lay_out(pool, linear),
        Linear::SmallFloat(linear) => small_float::lay_out(pool, linear),
    }
}

/// Whether packed kernels take the linear, as far as its tables say. Scales of integer codes, which are
/// no part of them, can still forbid it.
pub(crate) fn packs(source: &Linear<'_>) -> bool {
    match source {
        Linear::Exl2(linear) => exl2_fits(linear),
        Linear::Gptq(linear) => integer::group_rows(linear).is_some(),
        Linear::Plain(_) | Linear::Exl3(_) | Linear::SmallFloat(_) => true,
    }
}

/// Whether no product `(code − zero) · scale` overflows binary16.
fn exl2_fits(linear: &Exl2Linear<'_>) -> bool {
    linear.groups.iter().all(|group| {
        let largest = 256.0 * group_step(group.scale_max, 1.0).to_f32();
        largest * (1u32 << (group.bits - 1)) as f32 <= F16_OVERFLOW - 1.0
    })
}

/// Stored columns of every output.
pub(super) fn stored_columns(columns: &pagella_formats::Columns) -> Vec<usize> {
    columns.iter().collect()
}

/// Copies the words of one tile row into a line.
pub(super) fn read_line(row: &[u8], columns: &[usize]) -> Line {
    let mut line = [0u32; LANES];
    let word = |at: usize| {
        let b = &row[4 * at..4 * at + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    };
    match columns {
        [first, rest @ ..] if columns.len() == LANES && follow(*first, rest) => {
            let bytes = &row[4 * first..4 * (first + LANES)];
            for (out, b) in line.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        _ => line.iter_mut().zip(columns).for_each(|(out, &at)| *out = word(at)),
    }
    line
}

/// Whether `rest` continues `first` one by one.
fn follow(first: usize, rest: &[usize]) -> bool {
    rest.iter().zip(first + 1..).all(|(column, expected)| *column == expected)
}

pub(super) fn tile_columns(columns: &[usize], tile: usize) -> &[usize] {
    &columns[tile * LANES..columns.len().min((tile + 1) * LANES)]
}

/// Runs `fill(tile, words of the tile)` for all tiles, in parallel.
pub(super) fn fill_tiles<T: Send>(
    pool: &Pool,
    tiles: usize,
    data: &mut [T],
    fill: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Result<(), BackendError> {
    let per_tile = data.len() / tiles.max(1);
    let shares = Shares::new(data);
    pool.run(tiles, &|tile| {
        // SAFETY: every tile is handed out once and owns its own range.
        let part = unsafe { shares.part(tile * per_tile..(tile + 1) * per_tile) };
        fill(tile, part);
    })
}

/// Regroups the bit streams of 32 rows and 16 columns; compiled for the machine's vectors.
pub(super) struct RegroupBlock<'a> {
    pub(super) bits: u8,
    pub(super) words: &'a [Line],
    pub(super) out: &'a mut [u32],
}

impl Kernel for RegroupBlock<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut lines = [[0u32; LANES]; 8];
        let mut quads = [[0u32; LANES]; 8];
        for (q, quad) in quads.iter_mut().enumerate() {
            *quad = stream_quad(self.bits, self.words, q);
        }
        pack_quads(self.bits, &quads, &mut lines);
        for (line, out) in lines.iter().zip(self.out.chunks_exact_mut(LANES)) {
            out.copy_from_slice(line);
        }
    }
}

fn exl2(isa: Isa, pool: &Pool, linear: &Exl2Linear<'_>) -> Result<Laid, BackendError> {
    let tiles = linear.out_features.div_ceil(LANES);
    let blocks = cut(linear.groups.iter().map(|g| (g.bits, g.rows)), linear.in_features);
    let tile_words = LANES * linear.groups.iter().map(|g| g.words()).sum::<usize>();
    let columns = stored_columns(&linear.columns);
    let mut words = Aligned::zeroed(tiles * tile_words, "weights")?;
    fill_tiles(pool, tiles, &mut words, &|tile, out: &mut [u32]| {
        let columns = tile_columns(&columns, tile);
        let mut rest = out;
        for group in &linear.groups {
            let bits = usize::from(group.bits);
            for block in 0..group.rows / BLOCK_ROWS {
                let mut lines = [[0u32; LANES]; 8];
                for (i, line) in lines.iter_mut().enumerate().take(bits) {
                    let row = linear.words.row_bytes(group.first_word + block * bits + i);
                    *line = read_line(row, columns);
                }
                let (part, tail) = std::mem::take(&mut rest).split_at_mut(bits * LANES);
                isa.run(RegroupBlock { bits: group.bits, words: &lines[..bits], out: part });
                rest = tail;
            }
        }
    })?;
    let scales = exl2_scales(pool, linear, &columns, tiles)?;
    let groups = linear.groups.len();
    Ok(Laid {
        weights: Weights::Packed(Packed { words, tile_words, groups, scales }),
        perm: linear.perm.clone(),
        blocks,
        rotation: None,
    })
}

fn exl2_scales(
    pool: &Pool,
    linear: &Exl2Linear<'_>,
    columns: &[usize],
    tiles: usize,
) -> Result<Scales, BackendError> {
    let groups = linear.groups.len();
    let mut codes = Aligned::zeroed(tiles * groups.div_ceil(2) * LANES, "scales")?;
    fill_tiles(pool, tiles, &mut codes, &|tile, out: &mut [u8]| {
        let columns = tile_columns(columns, tile);
        for (pair, bytes) in out.chunks_exact_mut(LANES).enumerate() {
            for (byte, &column) in bytes.iter_mut().zip(columns) {
                let high =
                    if 2 * pair + 1 < groups { linear.scale_code(2 * pair + 1, column) } else { 0 };
                *byte = linear.scale_code(2 * pair, column) | high << 4;
            }
        }
    })?;
    let steps = linear.groups.iter().map(|g| group_step(g.scale_max, 1.0).to_f32()).collect();
    Ok(Scales::Square { codes, steps })
}

pub(super) fn plain_blocks(rows: usize) -> Vec<RowBlock> {
    cut([(0, rows)].into_iter(), rows)
}

/// A matrix `[in, out]` of exact binary16 values as plain weights.
fn expanded(rows: usize, outputs: usize, matrix: &[f16]) -> Result<Laid, BackendError> {
    let mut data = Aligned::zeroed(outputs.div_ceil(LANES) * rows * LANES, "weights")?;
    for (row, values) in matrix.chunks_exact(outputs.max(1)).enumerate() {
        for (column, value) in values.iter().enumerate() {
            data[(column / LANES * rows + row) * LANES + column % LANES] = value.to_bits();
        }
    }
    let weights = Weights::Plain(Plain::F16(data));
    Ok(Laid { weights, perm: Vec::new(), blocks: plain_blocks(rows), rotation: None })
}

fn plain(pool: &Pool, linear: &PlainLinear<'_>) -> Result<Laid, BackendError> {
    let weights = match linear.dtype {
        Dtype::F32 => Plain::F32(transpose(pool, linear, |b: [u8; 4]| f32::from_le_bytes(b))?),
        Dtype::BF16 => Plain::Bf16(transpose(pool, linear, u16::from_le_bytes)?),
        _ => Plain::F16(transpose(pool, linear, u16::from_le_bytes)?),
    };
    let blocks = plain_blocks(linear.in_features);
    let weights = Weights::Plain(weights);
    Ok(Laid { weights, perm: Vec::new(), blocks, rotation: None })
}

/// `[out, in]` (or `[in, out]`) elements of `N` bytes to `[tile][row][16]`.
fn transpose<T: Copy + Default + Send + Sync, const N: usize>(
    pool: &Pool,
    linear: &PlainLinear<'_>,
    read: impl Fn([u8; N]) -> T + Sync,
) -> Result<Aligned<T>, BackendError> {
    let (rows, tiles) = (linear.in_features, linear.out_features.div_ceil(LANES));
    let stored: Vec<usize> = linear.ranges.iter().cloned().flatten().collect();
    let (row_step, column_step) =
        if linear.transposed { (linear.stride, 1) } else { (1, linear.stride) };
    let mut data = Aligned::zeroed(tiles * rows * LANES, "weights")?;
    fill_tiles(pool, tiles, &mut data, &|tile, out: &mut [T]| {
        let columns = tile_columns(&stored, tile);
        // Squares of 64 rows keep both sides in the first-level cache.
        for first in (0..rows).step_by(64) {
            for (lane, &column) in columns.iter().enumerate() {
                for row in first..rows.min(first + 64) {
                    let at = N * (row * row_step + column * column_step);
                    let mut bytes = [0; N];
                    bytes.copy_from_slice(&linear.data[at..at + N]);
                    out[row * LANES + lane] = read(bytes);
                }
            }
        }
    })?;
    Ok(data)
}
