//! Integer codes with a scale and a zero point per group and column: GPTQ, and what is read as it.
//!
//! Rows are sorted by group, and codes regrouped from the bit streams of the file. Weights that the
//! packed kernels cannot represent exactly are expanded to their exact values instead.

use pagella_backend::BackendError;
use pagella_formats::{GptqLinear, WordMatrix};

use super::blocks::{BLOCK_ROWS, cut};
use super::pack::Line;
use super::relayout::{
    F16_OVERFLOW, Laid, RegroupBlock, fill_tiles, plain_blocks, read_line, stored_columns,
    tile_columns,
};
use super::weights::{Factors, Packed, Plain, Scales, Weights};
use crate::memory::Aligned;
use crate::simd::{Isa, LANES};
use crate::threads::Pool;

/// Lays out any linear of integer codes.
pub(super) fn lay_out(
    isa: Isa,
    pool: &Pool,
    linear: &GptqLinear<'_>,
) -> Result<Laid, BackendError> {
    match order(linear).filter(|_| is_exact(linear)) {
        Some(order) => packed(isa, pool, linear, order),
        None => products(linear),
    }
}

/// The rows of each group, if all of them are whole blocks.
pub(super) fn group_rows(linear: &GptqLinear<'_>) -> Option<Vec<usize>> {
    let mut counts = vec![0usize; linear.groups];
    for &group in &linear.group_of_row {
        counts[group as usize] += 1;
    }
    counts.iter().all(|rows| rows.is_multiple_of(BLOCK_ROWS)).then_some(counts)
}

/// Rows sorted by group and the rows of each group, when groups fill blocks.
fn order(linear: &GptqLinear<'_>) -> Option<(Vec<u32>, Vec<usize>)> {
    let counts = group_rows(linear)?;
    if linear.group_rows.is_some() {
        return Some((Vec::new(), counts));
    }
    let mut order: Vec<u32> = (0..linear.in_features as u32).collect();
    order.sort_by_key(|&row| linear.group_of_row[row as usize]);
    Some((order, counts))
}

/// Whether the kernels give every weight exactly: those that are rounded to binary16 may not overflow
/// it, and `zero · scale` must be exact.
fn is_exact(linear: &GptqLinear<'_>) -> bool {
    let all = |fits: &dyn Fn(usize, usize) -> bool| {
        (0..linear.groups).all(|group| linear.columns.iter().all(|column| fits(group, column)))
    };
    // No code is further from its zero point.
    let furthest = (1u32 << linear.bits) as f32;
    if linear.rounded {
        all(&|group, column| {
            linear.scales.value(group, column).abs() * furthest <= F16_OVERFLOW - 1.0
        })
    } else if linear.scales.is_half() {
        true
    } else {
        all(&|group, column| {
            let (scale, zero) = (linear.scales.value(group, column), linear.zero(group, column));
            f64::from(scale * f32::from(zero)) == f64::from(scale) * f64::from(zero)
        })
    }
}

fn packed(
    isa: Isa,
    pool: &Pool,
    linear: &GptqLinear<'_>,
    (perm, counts): (Vec<u32>, Vec<usize>),
) -> Result<Laid, BackendError> {
    let bits = linear.bits;
    let tiles = linear.out_features.div_ceil(LANES);
    let blocks = cut(counts.iter().map(|&rows| (bits, rows)), linear.in_features);
    let tile_words = LANES * linear.in_features / BLOCK_ROWS * usize::from(bits);
    let columns = stored_columns(&linear.columns);
    let stored = linear.words.matrix();
    let mut words = Aligned::zeroed(tiles * tile_words, "weights")?;
    fill_tiles(pool, tiles, &mut words, &|tile, out: &mut [u32]| {
        let columns = tile_columns(&columns, tile);
        for (block, part) in out.chunks_exact_mut(usize::from(bits) * LANES).enumerate() {
            let lines = lines(stored, bits, &perm, block, columns);
            isa.run(RegroupBlock { bits, words: &lines[..usize::from(bits)], out: part });
        }
    })?;
    let scales = scales(pool, linear, &columns, tiles)?;
    let groups = linear.groups;
    Ok(Laid {
        weights: Weights::Packed(Packed { words, tile_words, groups, scales }),
        perm,
        blocks,
        rotation: None,
    })
}

/// The codes of a block of 32 packed rows as lines of bit streams, one for each bit.
fn lines(
    words: WordMatrix<'_>,
    bits: u8,
    perm: &[u32],
    block: usize,
    columns: &[usize],
) -> [Line; 8] {
    let width = usize::from(bits);
    let mut lines = [[0u32; LANES]; 8];
    if perm.is_empty() {
        for (i, line) in lines.iter_mut().enumerate().take(width) {
            *line = read_line(words.row_bytes(block * width + i), columns);
        }
        return lines;
    }
    for (to, &row) in perm[block * BLOCK_ROWS..][..BLOCK_ROWS].iter().enumerate() {
        let (from, to) = (row as usize * width, to * width);
        let mut codes = read_line(words.row_bytes(from / 32), columns).map(|w| w >> (from % 32));
        if from % 32 + width > 32 {
            let next = read_line(words.row_bytes(from / 32 + 1), columns);
            codes.iter_mut().zip(next).for_each(|(code, w)| *code |= w << (32 - from % 32));
        }
        for (lane, code) in codes.into_iter().enumerate() {
            let code = code & ((1 << width) - 1);
            lines[to / 32][lane] |= code << (to % 32);
            if to % 32 + width > 32 {
                lines[to / 32 + 1][lane] |= code >> (32 - to % 32);
            }
        }
    }
    lines
}

fn scales(
    pool: &Pool,
    linear: &GptqLinear<'_>,
    columns: &[usize],
    tiles: usize,
) -> Result<Scales, BackendError> {
    let len = tiles * linear.groups * LANES;
    let scales = if linear.scales.is_half() {
        let scale = |group, column| linear.scale(group, column).to_bits();
        Factors::Half(table(pool, len, "scales", columns, tiles, &scale)?)
    } else {
        let scale = |group, column| linear.scales.value(group, column);
        Factors::Single(table(pool, len, "scales", columns, tiles, &scale)?)
    };
    let zero = |group, column| linear.zero(group, column);
    let zeros = table(pool, len, "zero points", columns, tiles, &zero)?;
    Ok(Scales::Affine { scales, zeros, rounded: linear.rounded })
}

/// `[tile][group][16]` of `value(group, stored column)`.
fn table<T: Copy + Default + Send + Sync>(
    pool: &Pool,
    len: usize,
    what: &'static str,
    columns: &[usize],
    tiles: usize,
    value: &(dyn Fn(usize, usize) -> T + Sync),
) -> Result<Aligned<T>, BackendError> {
    let mut table = Aligned::zeroed(len, what)?;
    fill_tiles(pool, tiles, &mut table, &|tile, out: &mut [T]| {
        for (group, line) in out.chunks_exact_mut(LANES).enumerate() {
            for (out, &column) in line.iter_mut().zip(tile_columns(columns, tile)) {
                *out = value(group, column);
            }
        }
    })?;
    Ok(table)
}

/// A matrix that the kernels cannot take as it is, as plain weights.
fn products(linear: &GptqLinear<'_>) -> Result<Laid, BackendError> {
    let (rows, outputs) = (linear.in_features, linear.out_features);
    let mut data = Aligned::zeroed(outputs.div_ceil(LANES) * rows * LANES, "weights")?;
    for (column, stored) in linear.columns.iter().enumerate() {
        for row in 0..rows {
            let at = (column / LANES * rows + row) * LANES + column % LANES;
            data[at] = linear.product(row, stored);
        }
    }
    let weights = Weights::Plain(Plain::F32(data));
    Ok(Laid { weights, perm: Vec::new(), blocks: plain_blocks(rows), rotation: None })
}
