//! From a file's codes and scales to tiles.
//!
//! Codes stay as wide as they are stored. Scales stay exponents or E4M3 where they are; others become
//! f32. Runs of bitsandbytes that begin inside of eight inputs are expanded to their exact values.

use pagella_backend::BackendError;
use pagella_formats::SmallFloatLinear;
use pagella_formats::small_float::{Number, ScaleValues};

use super::super::blocks::cut;
use super::super::relayout::{Laid, fill_tiles, plain_blocks, tile_columns};
use super::super::weights::{Plain, Weights};
use super::{Codes, E4M3_FACTOR, Scales, SmallFloat, WORD_ROWS};
use crate::memory::Aligned;
use crate::simd::LANES;
use crate::threads::Pool;

/// Exponents of normal f32 powers of two.
const EXPONENTS: std::ops::RangeInclusive<u32> = 1..=254;

/// What is needed to read a matrix tile by tile.
struct Source<'a> {
    pool: &'a Pool,
    linear: &'a SmallFloatLinear<'a>,
    /// Stored outputs.
    columns: Vec<usize>,
    tiles: usize,
    /// Inputs of a group.
    group: usize,
    groups: usize,
}

/// Lays out a matrix.
pub(crate) fn lay_out(pool: &Pool, linear: &SmallFloatLinear<'_>) -> Result<Laid, BackendError> {
    let rows = linear.in_features;
    let group = linear.group_inputs();
    let groups = rows.div_ceil(group);
    let columns: Vec<usize> = linear.stored_outputs().collect();
    let tiles = columns.len().div_ceil(LANES);
    let source = Source { pool, linear, columns, tiles, group, groups };
    if groups_cut_words(linear) {
        return source.expanded();
    }
    let weights = SmallFloat { codes: source.codes()?, scales: source.scales()?, rows, groups };
    let bits = linear.number.bits();
    let blocks = cut((0..groups).map(|g| (bits, group.min(rows - g * group))), rows);
    let weights = Weights::SmallFloat(weights);
    Ok(Laid { weights, perm: Vec::new(), blocks, rotation: None })
}

/// Bytes that a matrix takes when it is laid out.
pub(crate) fn laid_bytes(linear: &SmallFloatLinear<'_>) -> usize {
    let rows = linear.in_features;
    let lines_bytes = |lines: usize| linear.out_features.div_ceil(LANES) * lines * LANES;
    if groups_cut_words(linear) {
        return 4 * lines_bytes(rows);
    }
    let codes = match linear.number.bits() {
        4 => 4 * lines_bytes(rows.div_ceil(WORD_ROWS)),
        _ => lines_bytes(rows),
    };
    let scale_bytes = if scale_form(linear) == ScaleForm::F32 { 4 } else { 1 };
    codes + scale_bytes * lines_bytes(rows.div_ceil(linear.group_inputs()))
}

/// Whether groups begin inside of the words that hold codes of 4 bits.
fn groups_cut_words(linear: &SmallFloatLinear<'_>) -> bool {
    let group = linear.group_inputs();
    linear.number.bits() == 4 && group < linear.in_features && !group.is_multiple_of(WORD_ROWS)
}

/// What scales are kept as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScaleForm {
    E4m3,
    Exponents,
    F32,
}

/// What the scales of codes are multiplied by.
fn factor(number: &Number) -> f32 {
    match number {
        Number::E4m3 => E4M3_FACTOR,
        _ => 1.0,
    }
}

fn scale_form(linear: &SmallFloatLinear<'_>) -> ScaleForm {
    let (scales, factor) = (&linear.scales, factor(&linear.number));
    // Whether powers of two are what their exponents say, times the factor too.
    let is_normal = |scale: f32| {
        scale >= f32::MIN_POSITIVE && EXPONENTS.contains(&((scale * factor).to_bits() >> 23))
    };
    match scales {
        ScaleValues::E4m3(..) if factor == 1.0 => ScaleForm::E4m3,
        ScaleValues::E8m0(_) if (0..scales.len()).all(|index| is_normal(scales.at(index))) => {
            ScaleForm::Exponents
        }
        _ => ScaleForm::F32,
    }
}

impl Source<'_> {
    fn codes(&self) -> Result<Codes, BackendError> {
        match &self.linear.number {
            Number::E4m3 => Ok(Codes::E4m3(self.bytes()?)),
            Number::E5m2 => Ok(Codes::E5m2(self.bytes()?)),
            Number::E2m1 | Number::Table(_) => {
                let table = self.linear.number.table().copied().unwrap_or_default();
                Ok(Codes::Four { words: self.words()?, table })
            }
        }
    }

    /// Codes of 4 bits, eight rows in a word.
    fn words(&self) -> Result<Aligned<u32>, BackendError> {
        let lines = self.linear.in_features.div_ceil(WORD_ROWS);
        let mut words = Aligned::zeroed(self.tiles * lines * LANES, "weights")?;
        fill_tiles(self.pool, self.tiles, &mut words, &|tile, out: &mut [u32]| {
            for (lane, stored) in tile_columns(&self.columns, tile).iter().enumerate() {
                for (index, line) in out.chunks_exact_mut(LANES).enumerate() {
                    line[lane] = self.linear.eight_codes(*stored, index * WORD_ROWS);
                }
            }
        })?;
        Ok(words)
    }

    fn bytes(&self) -> Result<Aligned<u8>, BackendError> {
        let mut bytes = Aligned::zeroed(self.tiles * self.linear.in_features * LANES, "weights")?;
        fill_tiles(self.pool, self.tiles, &mut bytes, &|tile, out: &mut [u8]| {
            for (lane, stored) in tile_columns(&self.columns, tile).iter().enumerate() {
                let lines = out.chunks_exact_mut(LANES);
                match self.linear.row_bytes(*stored) {
                    Some(row) => lines.zip(row).for_each(|(line, code)| line[lane] = *code),
                    None => {
                        let code = |row| self.linear.code(*stored, row);
                        lines.enumerate().for_each(|(row, line)| line[lane] = code(row));
                    }
                }
            }
        })?;
        Ok(bytes)
    }

    fn scales(&self) -> Result<Scales, BackendError> {
        let factor = factor(&self.linear.number);
        let scale = |stored: usize, first: usize| self.linear.scale(stored, first) * factor;
        match (scale_form(self.linear), &self.linear.scales) {
            (ScaleForm::E4m3, ScaleValues::E4m3(bytes, over)) => {
                let byte = |stored, first| {
                    bytes.get(self.linear.scale_index(stored, first)).copied().unwrap_or_default()
                };
                Ok(Scales::E4m3(self.each_group(byte)?, *over))
            }
            (ScaleForm::Exponents, _) => {
                let exponent = |stored, first| (scale(stored, first).to_bits() >> 23) as u8;
                Ok(Scales::Exponents(self.each_group(exponent)?))
            }
            _ => Ok(Scales::F32(self.each_group(scale)?)),
        }
    }

    /// One value for every group of a column, from the stored output and the group's first input.
    fn each_group<T: Copy + Default + Send + Sync>(
        &self,
        value: impl Fn(usize, usize) -> T + Sync,
    ) -> Result<Aligned<T>, BackendError> {
        let mut values = Aligned::zeroed(self.tiles * self.groups * LANES, "scales")?;
        fill_tiles(self.pool, self.tiles, &mut values, &|tile, out: &mut [T]| {
            for (lane, stored) in tile_columns(&self.columns, tile).iter().enumerate() {
                for (group, line) in out.chunks_exact_mut(LANES).enumerate() {
                    line[lane] = value(*stored, group * self.group);
                }
            }
        })?;
        Ok(values)
    }

    /// The exact weights in f32.
    fn expanded(&self) -> Result<Laid, BackendError> {
        let rows = self.linear.in_features;
        let mut data = Aligned::zeroed(self.tiles * rows * LANES, "weights")?;
        fill_tiles(self.pool, self.tiles, &mut data, &|tile, out: &mut [f32]| {
            for (lane, stored) in tile_columns(&self.columns, tile).iter().enumerate() {
                for (row, line) in out.chunks_exact_mut(LANES).enumerate() {
                    line[lane] = self.linear.weight(*stored, row);
                }
            }
        })?;
        let weights = Weights::Plain(Plain::F32(data));
        Ok(Laid { weights, perm: Vec::new(), blocks: plain_blocks(rows), rotation: None })
    }
}
