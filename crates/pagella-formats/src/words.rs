//! A matrix of packed 32-bit words, read in place from little-endian bytes of any alignment.
//!
//! Invariant: the bytes are exactly `rows · columns · 4`, so every in-range index is in bounds.

#![allow(clippy::indexing_slicing, reason = "the length is checked once, in `new`")]

use crate::dtype::Dtype;
use crate::error::Result;
use crate::tensor::TensorView;

/// Row-major words, shape `[rows, columns]`, borrowed from a file or a buffer.
#[derive(Clone, Copy, Debug)]
pub struct WordMatrix<'a> {
    bytes: &'a [u8],
    rows: usize,
    columns: usize,
}

impl<'a> WordMatrix<'a> {
    /// Takes `bytes` as a matrix; `None` when they are not `rows · columns · 4` long.
    pub fn new(bytes: &'a [u8], rows: usize, columns: usize) -> Option<Self> {
        let len = rows.checked_mul(columns)?.checked_mul(4)?;
        (bytes.len() == len).then_some(Self { bytes, rows, columns })
    }

    /// Takes an I32 matrix as words.
    pub(crate) fn from_tensor(tensor: &TensorView<'a>) -> Result<Self> {
        tensor.expect_dtype(Dtype::I32)?;
        let (rows, columns) = tensor.matrix_shape()?;
        Self::new(tensor.data, rows, columns)
            .ok_or_else(|| tensor.wrong_shape("as many elements as it has"))
    }

    /// Number of word rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of words per row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All words, little-endian, possibly unaligned.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The words of one row, little-endian, `4 · columns` bytes.
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let stride = self.columns * 4;
        &self.bytes[row * stride..(row + 1) * stride]
    }

    /// The word at `(row, col)`.
    pub fn word(&self, row: usize, col: usize) -> u32 {
        let [a, b, c, d] = self.row_bytes(row)[col * 4..col * 4 + 4] else {
            unreachable!("a slice of four bytes")
        };
        u32::from_le_bytes([a, b, c, d])
    }

    /// The `index`-th 4-bit code of a row, lowest nibble first.
    pub fn nibble(&self, row: usize, index: usize) -> u8 {
        (self.word(row, index / 8) >> (4 * (index % 8)) & 15) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_nibbles_come_low_end_first() {
        let bytes = [0xff, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe];
        let matrix = WordMatrix::new(&bytes[1..], 2, 1).unwrap();
        assert_eq!(matrix.word(0, 0), 0x7654_3210);
        assert_eq!(matrix.word(1, 0), 0xfedc_ba98);
        assert_eq!(
            (0..8).map(|i| matrix.nibble(0, i)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
    }

    #[test]
    fn a_wrong_length_is_no_matrix() {
        assert!(WordMatrix::new(&[0; 8], 1, 1).is_none());
        assert!(WordMatrix::new(&[], usize::MAX, usize::MAX).is_none());
    }
}
