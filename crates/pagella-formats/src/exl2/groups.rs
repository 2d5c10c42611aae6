//! The group table of EXL2: which rows have which width, where their words begin.
//!
//! Takes plain bytes, so that it can be fuzzed without a file.

use half::f16;

/// Widths a group may have, widest first.
pub const WIDTHS: [u8; 6] = [8, 6, 5, 4, 3, 2];

/// Rows of every group are a multiple of this, so that each group fills whole words.
pub const GROUP_ROWS_MULTIPLE: usize = 32;

/// A run of packed rows with one width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exl2Group {
    /// Bits per weight: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Rows in the group, a multiple of 32.
    pub rows: usize,
    /// Its first row in packed order.
    pub first_row: usize,
    /// Its first row of packed words.
    pub first_word: usize,
    /// Ceiling of its scales, finite and not negative.
    pub scale_max: f16,
}

impl Exl2Group {
    /// Rows of packed words it takes.
    pub fn words(&self) -> usize {
        self.rows * usize::from(self.bits) / 32
    }
}

/// What is wrong with a group table.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupTableError {
    /// The table is empty, cut short, or of another length than the ceilings.
    #[error("table of {table_bytes} bytes does not match {ceilings} scale ceilings")]
    Length {
        /// Bytes of the table, four per group.
        table_bytes: usize,
        /// Number of ceilings.
        ceilings: usize,
    },
    /// A width that the format does not have.
    #[error("group {group} has {bits} bits; 2, 3, 4, 5, 6 and 8 are possible")]
    Width {
        /// Index of the group.
        group: usize,
        /// What the table says.
        bits: u16,
    },
    /// A width greater than that of the group before.
    #[error("group {group} is wider than the group before; widths must not increase")]
    Order {
        /// Index of the group.
        group: usize,
    },
    /// A start that is not after the start before, or not inside the weights.
    #[error("group {group} covers word rows {begin}..{end} of {word_rows}")]
    Start {
        /// Index of the group.
        group: usize,
        /// Its first word row.
        begin: usize,
        /// Where the next one begins.
        end: usize,
        /// Word rows there are.
        word_rows: usize,
    },
    /// A group whose words do not make a multiple of 32 rows.
    #[error("group {group} of {words} word rows at {bits} bits is not a multiple of 32 rows")]
    Rows {
        /// Index of the group.
        group: usize,
        /// Its word rows.
        words: usize,
        /// Its width.
        bits: u8,
    },
    /// A ceiling that is negative, infinite or not a number.
    #[error("group {group} has the scale ceiling {value}")]
    Ceiling {
        /// Index of the group.
        group: usize,
        /// What the file says.
        value: f16,
    },
}

/// Reads the groups from the bytes of `q_groups` and `q_scale_max`, for `word_rows` rows of words.
///
/// The first group starts at word 0 and the last one ends with the words. Starts are unsigned:
/// ExLlamaV2 reads them both ways, which agrees for every matrix that it can hold.
pub fn parse(
    table: &[u8],
    ceilings: &[u8],
    word_rows: usize,
) -> Result<Vec<Exl2Group>, GroupTableError> {
    let (pairs, table_rest) = table.as_chunks::<4>();
    let (ceilings, ceilings_rest) = ceilings.as_chunks::<2>();
    let whole = table_rest.is_empty() && ceilings_rest.is_empty();
    if pairs.is_empty() || pairs.len() != ceilings.len() || !whole {
        let ceilings = ceilings.len();
        return Err(GroupTableError::Length { table_bytes: table.len(), ceilings });
    }
    let starts =
        pairs.iter().map(|[_, _, low, high]| usize::from(u16::from_le_bytes([*low, *high])));
    let ends = starts.clone().skip(1).chain([word_rows]);
    let mut groups: Vec<Exl2Group> = Vec::with_capacity(pairs.len());
    for (group, (begin, end)) in starts.zip(ends).enumerate() {
        if begin >= end || end > word_rows || (group == 0 && begin != 0) {
            return Err(GroupTableError::Start { group, begin, end, word_rows });
        }
        let (Some([low, high, ..]), Some(ceiling)) = (pairs.get(group), ceilings.get(group)) else {
            continue; // All three lists have one length.
        };
        let bits = u16::from_le_bytes([*low, *high]);
        let last = groups.last();
        groups.push(group_of(group, bits, begin..end, f16::from_le_bytes(*ceiling), last)?);
    }
    Ok(groups)
}

/// One group after `last`, from its table entry.
fn group_of(
    group: usize,
    bits: u16,
    words: std::ops::Range<usize>,
    scale_max: f16,
    last: Option<&Exl2Group>,
) -> Result<Exl2Group, GroupTableError> {
    let width = WIDTHS.into_iter().find(|width| u16::from(*width) == bits);
    let bits = width.ok_or(GroupTableError::Width { group, bits })?;
    if last.is_some_and(|last| last.bits < bits) {
        return Err(GroupTableError::Order { group });
    }
    if !scale_max.is_finite() || scale_max < f16::ZERO {
        return Err(GroupTableError::Ceiling { group, value: scale_max });
    }
    // Words of a group are fewer than 2^16 except in the last one, which the file's size bounds.
    let columns_bits = words.len().saturating_mul(32);
    let rows = columns_bits / usize::from(bits);
    if !columns_bits.is_multiple_of(usize::from(bits)) || !rows.is_multiple_of(GROUP_ROWS_MULTIPLE)
    {
        return Err(GroupTableError::Rows { group, words: words.len(), bits });
    }
    let first_row = last.map_or(0, |last| last.first_row + last.rows);
    Ok(Exl2Group { bits, rows, first_row, first_word: words.start, scale_max })
}

#[cfg(test)]
mod tests;
