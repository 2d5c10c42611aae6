//! The way back: codes, scale codes and row order to the tensors of an EXL2 file.

#![allow(clippy::indexing_slicing, reason = "lengths are checked at the entry of each function")]

use half::f16;

use super::groups::{GROUP_ROWS_MULTIPLE, WIDTHS};
use crate::dtype::Dtype;
use crate::safetensors::write::TensorData;

/// What cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A width that the format does not have.
    #[error("{bits} bits per weight; 2, 3, 4, 5, 6 and 8 are possible")]
    Width {
        /// The width asked for.
        bits: u8,
    },
    /// A group that would share a word with the next one.
    #[error("{rows} rows in a group; a multiple of 32 is needed")]
    Rows {
        /// The rows asked for.
        rows: usize,
    },
    /// A slice of another length than the shape needs.
    #[error("{found} values where {expected} are needed")]
    Length {
        /// Values needed.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// A code that does not fit its width.
    #[error("code {code} does not fit {bits} bits")]
    Code {
        /// The code.
        code: u8,
        /// The width.
        bits: u8,
    },
    /// More word rows than the 16-bit table can address, or widths that increase.
    #[error("group {group} cannot be described by the table")]
    Table {
        /// Index of the group.
        group: usize,
    },
    /// A row order that is not a permutation.
    #[error("row order is not a permutation: entry {index}")]
    Permutation {
        /// First offending entry.
        index: usize,
    },
}

/// Packs the codes of one group, `[rows, columns]`, to words `[rows · bits / 32, columns]`.
pub fn pack_codes(
    codes: &[u8],
    rows: usize,
    columns: usize,
    bits: u8,
) -> Result<Vec<u32>, PackError> {
    check_shape(codes.len(), rows, columns, bits)?;
    if let Some(code) = codes.iter().find(|code| u32::from(**code) >= 1 << bits) {
        return Err(PackError::Code { code: *code, bits });
    }
    let width = usize::from(bits);
    let mut words = vec![0u32; rows * width / 32 * columns];
    for (row, codes) in codes.chunks_exact(columns.max(1)).enumerate() {
        let (word, shift) = (row * width / 32, row * width % 32);
        for (col, code) in codes.iter().enumerate() {
            let window = u64::from(*code) << shift;
            words[word * columns + col] |= window as u32;
            if shift + width > 32 {
                words[(word + 1) * columns + col] |= (window >> 32) as u32;
            }
        }
    }
    Ok(words)
}

/// Unpacks the words of one group, `[rows · bits / 32, columns]`, to codes `[rows, columns]`.
pub fn unpack_codes(
    words: &[u32],
    rows: usize,
    columns: usize,
    bits: u8,
) -> Result<Vec<u8>, PackError> {
    let width = usize::from(bits);
    check_group(rows, bits)?;
    check_len(words.len(), (rows * width / 32).saturating_mul(columns))?;
    let mut codes = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        let (word, shift) = (row * width / 32, row * width % 32);
        for col in 0..columns {
            let mut window = u64::from(words[word * columns + col]);
            if shift + width > 32 {
                window |= u64::from(words[(word + 1) * columns + col]) << 32;
            }
            codes.push((window >> shift & ((1 << width) - 1)) as u8);
        }
    }
    Ok(codes)
}

/// Packs 4-bit codes, eight per word, the first in the lowest nibble. The length must be a
/// multiple of 8.
pub fn pack_nibbles(codes: &[u8]) -> Result<Vec<u32>, PackError> {
    let (octets, rest) = codes.as_chunks::<8>();
    if !rest.is_empty() {
        let expected = codes.len().next_multiple_of(8);
        return Err(PackError::Length { expected, found: codes.len() });
    }
    if let Some(code) = codes.iter().find(|code| **code > 15) {
        return Err(PackError::Code { code: *code, bits: 4 });
    }
    let pack =
        |octet: &[u8; 8]| octet.iter().rev().fold(0, |word, code| word << 4 | u32::from(*code));
    Ok(octets.iter().map(pack).collect())
}

/// The opposite of [`pack_nibbles`].
pub fn unpack_nibbles(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| (0..8).map(move |i| (word >> (4 * i) & 15) as u8)).collect()
}

/// The table `[bits_0, start_0, bits_1, …]` of groups given as `(bits, rows)` in packed order.
pub fn group_table(groups: &[(u8, usize)]) -> Result<Vec<i16>, PackError> {
    let mut table = Vec::with_capacity(groups.len() * 2);
    let (mut start, mut widest) = (0usize, u8::MAX);
    for (group, (bits, rows)) in groups.iter().enumerate() {
        check_group(*rows, *bits)?;
        // Below 2^15, because ExLlamaV2 reads the table as signed in one place.
        let entry = i16::try_from(start).ok().filter(|_| *bits <= widest);
        table.extend([i16::from(*bits), entry.ok_or(PackError::Table { group })?]);
        start = start.saturating_add(rows / 32 * usize::from(*bits));
        widest = *bits;
    }
    Ok(table)
}

/// The stored order of `perm`: the packed position of every input feature.
pub fn inverse_permutation(perm: &[u32]) -> Result<Vec<i32>, PackError> {
    // Values beyond i32 become -1, which is out of range as well.
    let positions: Vec<i32> = perm.iter().map(|row| i32::try_from(*row).unwrap_or(-1)).collect();
    let inverse = super::layout::invert(&positions);
    let inverse = inverse.map_err(|index| PackError::Permutation { index })?;
    Ok(inverse.into_iter().map(|row| row as i32).collect())
}

/// The tensors of one EXL2 linear in memory, ready to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exl2Tensors {
    /// Stored columns, a multiple of 8.
    pub columns: usize,
    /// Packed codes, `[word rows, columns]`, little-endian.
    pub q_weight: Vec<u8>,
    /// Packed scale codes, `[groups, columns / 8]`, little-endian.
    pub q_scale: Vec<u8>,
    /// Ceilings, `[groups]`, binary16.
    pub q_scale_max: Vec<u8>,
    /// Group table, `[2 · groups]`, 16-bit.
    pub q_groups: Vec<u8>,
    /// Packed position of every input, `[rows]`, 32-bit.
    pub q_invperm: Vec<u8>,
}

/// One group to be packed.
#[derive(Clone, Copy, Debug)]
pub struct GroupCodes<'a> {
    /// Bits per code.
    pub bits: u8,
    /// Codes in packed row order, `[rows, columns]`.
    pub codes: &'a [u8],
    /// Scale codes, `[columns]`.
    pub scale_codes: &'a [u8],
    /// Ceiling of the scales.
    pub scale_max: f16,
}

impl Exl2Tensors {
    /// Packs groups in their order; packed row `r` holds input feature `perm[r]`.
    pub fn pack(
        columns: usize,
        groups: &[GroupCodes<'_>],
        perm: &[u32],
    ) -> Result<Self, PackError> {
        let mut tensors = Self { columns, ..Self::default() };
        let mut sizes = Vec::with_capacity(groups.len());
        for group in groups {
            let rows = group.codes.len() / columns.max(1);
            check_len(group.scale_codes.len(), columns)?;
            let words = pack_codes(group.codes, rows, columns, group.bits)?;
            tensors.q_weight.extend(words.into_iter().flat_map(u32::to_le_bytes));
            let scales = pack_nibbles(group.scale_codes)?;
            tensors.q_scale.extend(scales.into_iter().flat_map(u32::to_le_bytes));
            tensors.q_scale_max.extend(group.scale_max.to_le_bytes());
            sizes.push((group.bits, rows));
        }
        check_len(perm.len(), sizes.iter().map(|(_, rows)| rows).sum())?;
        tensors.q_groups = group_table(&sizes)?.into_iter().flat_map(i16::to_le_bytes).collect();
        let invperm = inverse_permutation(perm)?;
        tensors.q_invperm = invperm.into_iter().flat_map(i32::to_le_bytes).collect();
        Ok(tensors)
    }

    /// The tensors under their names in the file.
    pub fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        let groups = self.q_scale_max.len() / 2;
        let word_rows = self.q_weight.len() / (self.columns * 4).max(1);
        let rows = self.q_invperm.len() / 4;
        [
            ("q_weight", Dtype::I32, vec![word_rows, self.columns], &self.q_weight),
            ("q_scale", Dtype::I32, vec![groups, self.columns / 8], &self.q_scale),
            ("q_scale_max", Dtype::F16, vec![groups], &self.q_scale_max),
            ("q_groups", Dtype::I16, vec![2 * groups], &self.q_groups),
            ("q_invperm", Dtype::I32, vec![rows], &self.q_invperm),
        ]
        .into_iter()
        .map(|(suffix, dtype, shape, data)| TensorData {
            name: format!("{base}.{suffix}"),
            dtype,
            shape,
            data,
        })
        .collect()
    }
}

fn check_group(rows: usize, bits: u8) -> Result<(), PackError> {
    if !WIDTHS.contains(&bits) {
        return Err(PackError::Width { bits });
    }
    let whole = rows > 0 && rows.is_multiple_of(GROUP_ROWS_MULTIPLE);
    if whole { Ok(()) } else { Err(PackError::Rows { rows }) }
}

fn check_shape(found: usize, rows: usize, columns: usize, bits: u8) -> Result<(), PackError> {
    check_group(rows, bits)?;
    check_len(found, rows.saturating_mul(columns))
}

fn check_len(found: usize, expected: usize) -> Result<(), PackError> {
    if found == expected { Ok(()) } else { Err(PackError::Length { expected, found }) }
}

#[cfg(test)]
mod tests;
