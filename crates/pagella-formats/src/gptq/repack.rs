//! From other packings to words of codes down the rows.

#![allow(clippy::indexing_slicing, reason = "callers size both sides by the same extents")]

use crate::words::WordMatrix;

/// Rows and columns of a square that is turned at once: both sides of it fit a first-level cache.
const SQUARE: usize = 64;

/// Writes the transpose of `words` to `out`, every word with the bits of `flip` flipped.
pub(crate) fn transpose(words: WordMatrix<'_>, flip: u32, out: &mut [u8]) {
    let (rows, columns) = (words.rows(), words.columns());
    let (from, _) = words.bytes().as_chunks::<4>();
    let (to, _) = out.as_chunks_mut::<4>();
    for first_row in (0..rows).step_by(SQUARE) {
        for first_column in (0..columns).step_by(SQUARE) {
            for row in first_row..rows.min(first_row + SQUARE) {
                for column in first_column..columns.min(first_column + SQUARE) {
                    let word = u32::from_le_bytes(from[row * columns + column]) ^ flip;
                    to[column * rows + row] = word.to_le_bytes();
                }
            }
        }
    }
}

/// Writes `words` to `out`, each through `map`.
pub(crate) fn map_words(words: WordMatrix<'_>, out: &mut [u8], map: impl Fn(u32) -> u32) {
    let (from, _) = words.bytes().as_chunks::<4>();
    let (to, _) = out.as_chunks_mut::<4>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = map(u32::from_le_bytes(*from)).to_le_bytes();
    }
}

/// Writes codes of one byte each, `[columns, rows]` as stored, to words of four rows, each with its
/// highest bit flipped: two's complement becomes a distance from −128.
pub(crate) fn transpose_bytes(codes: &[u8], rows: usize, columns: usize, out: &mut [u8]) {
    if rows.is_multiple_of(4) {
        if let Some(words) = WordMatrix::new(codes, columns, rows / 4) {
            transpose(words, 0x8080_8080, out);
        }
        return;
    }
    for (column, codes) in codes.chunks_exact(rows.max(1)).enumerate() {
        for (row, code) in codes.iter().enumerate() {
            out[(row / 4 * columns + column) * 4 + row % 4] = code ^ 0x80;
        }
    }
}

/// Turns eight words of eight nibbles: nibble `j` of word `i` becomes nibble `i` of word `j`.
pub(crate) fn transpose_nibbles(words: &mut [u32; 8]) {
    for (apart, mask) in [(4usize, 0x0000_ffffu32), (2, 0x00ff_00ff), (1, 0x0f0f_0f0f)] {
        let shift = 4 * apart as u32;
        for low in (0..8).filter(|index| index & apart == 0) {
            let high = low + apart;
            let swapped = (words[low] >> shift ^ words[high]) & mask;
            words[high] ^= swapped;
            words[low] ^= swapped << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_rows_for_columns() {
        let (rows, columns) = (70, 67);
        let bytes: Vec<u8> = (0..rows * columns).flat_map(|at| (at as u32).to_le_bytes()).collect();
        let mut out = vec![0; bytes.len()];
        transpose(WordMatrix::new(&bytes, rows, columns).unwrap(), 1, &mut out);
        let turned = WordMatrix::new(&out, columns, rows).unwrap();
        for (row, column) in [(0, 0), (69, 66), (3, 64), (64, 3)] {
            assert_eq!(turned.word(column, row), (row * columns + column) as u32 ^ 1);
        }
    }

    #[test]
    fn signed_bytes_become_codes_at_any_number_of_rows() {
        for rows in [8usize, 7] {
            let codes: Vec<u8> = (0..rows * 3).map(|at| (at * 11) as u8).collect();
            let mut out = vec![0; rows.div_ceil(4) * 3 * 4];
            transpose_bytes(&codes, rows, 3, &mut out);
            let words = WordMatrix::new(&out, rows.div_ceil(4), 3).unwrap();
            for (column, row) in [(0, 0), (1, 5), (2, rows - 1)] {
                let signed = i16::from(codes[column * rows + row] as i8);
                assert_eq!(i16::from(words.code_down(row, column, 8)), signed + 128);
            }
        }
    }

    #[test]
    fn every_nibble_finds_its_place() {
        let before: [u32; 8] = std::array::from_fn(|i| (i as u32 + 1).wrapping_mul(0x9e37_79b1));
        let mut after = before;
        transpose_nibbles(&mut after);
        for (i, row) in before.iter().enumerate() {
            for (j, column) in after.iter().enumerate() {
                assert_eq!(column >> (4 * i) & 15, row >> (4 * j) & 15, "{i} {j}");
            }
        }
    }
}
