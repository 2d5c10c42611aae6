//! Matrices of packed 32-bit words, read in place from little-endian bytes of any alignment, and
//! words that are re-packed from them once somebody wants them.
//!
//! Invariant: the bytes are exactly `rows · columns · 4`, so every in-range index is in bounds.

#![allow(clippy::indexing_slicing, reason = "the length is checked once, in `new`")]

use std::fmt;
use std::sync::{Arc, OnceLock};

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

    /// The `index`-th code of `bits` bits of a column, when its words are one bit stream down the
    /// rows, lowest bits first.
    pub fn code_down(&self, index: usize, col: usize, bits: u8) -> u8 {
        stream_code(index, bits, |word| self.word(word, col))
    }

    /// The `index`-th code of `bits` bits of a row, when its words are one bit stream, lowest bits
    /// first.
    pub fn code_along(&self, row: usize, index: usize, bits: u8) -> u8 {
        stream_code(index, bits, |word| self.word(row, word))
    }
}

/// The `index`-th code of a bit stream in words; a code may straddle two.
fn stream_code(index: usize, bits: u8, word: impl Fn(usize) -> u32) -> u8 {
    let bits = usize::from(bits);
    let (at, shift) = (index * bits / 32, index * bits % 32);
    let mut stream = word(at) >> shift;
    if shift + bits > 32 {
        stream |= word(at + 1) << (32 - shift);
    }
    (stream & ((1 << bits) - 1)) as u8
}

/// Words that a code of `bits` bits for each of `codes` fills; `None` when they cannot be counted.
pub(crate) fn words_for(codes: usize, bits: u8) -> Option<usize> {
    codes.checked_mul(usize::from(bits)).map(|bits| bits.div_ceil(32))
}

/// A word matrix as it lies in a file, or one that is made on first use.
///
/// Reading a linear stays a matter of headers that way, and what was made lives as long as the linear.
#[derive(Clone)]
pub struct Words<'a> {
    rows: usize,
    columns: usize,
    source: Source<'a>,
}

#[derive(Clone)]
enum Source<'a> {
    Stored(&'a [u8]),
    Repacked(Arc<Repacked<'a>>),
}

/// Writes words over zeros.
type Make<'a> = dyn Fn(&mut [u8]) + Send + Sync + 'a;

/// Words to be, little-endian.
struct Repacked<'a> {
    bytes: OnceLock<Vec<u8>>,
    make: Box<Make<'a>>,
}

impl<'a> From<WordMatrix<'a>> for Words<'a> {
    fn from(words: WordMatrix<'a>) -> Self {
        let WordMatrix { bytes, rows, columns } = words;
        Self { rows, columns, source: Source::Stored(bytes) }
    }
}

impl<'a> Words<'a> {
    /// Words that `make` writes, `[rows, columns]`, over zeros; `None` when they cannot be counted.
    pub(crate) fn repacked(
        rows: usize,
        columns: usize,
        make: impl Fn(&mut [u8]) + Send + Sync + 'a,
    ) -> Option<Self> {
        rows.checked_mul(columns)?.checked_mul(4)?;
        let repacked = Repacked { bytes: OnceLock::new(), make: Box::new(make) };
        Some(Self { rows, columns, source: Source::Repacked(Arc::new(repacked)) })
    }

    /// The matrix.
    pub fn matrix(&self) -> WordMatrix<'_> {
        let (rows, columns) = (self.rows, self.columns);
        let bytes = match &self.source {
            Source::Stored(bytes) => bytes,
            Source::Repacked(repacked) => repacked
                .bytes
                .get_or_init(|| {
                    let mut bytes = vec![0; rows * columns * 4];
                    (repacked.make)(&mut bytes);
                    bytes
                })
                .as_slice(),
        };
        WordMatrix { bytes, rows, columns }
    }

    /// All words, little-endian, possibly unaligned.
    pub fn bytes(&self) -> &[u8] {
        self.matrix().bytes
    }

    /// Bytes that they take besides their file, once somebody wants them.
    pub(crate) fn made_bytes(&self) -> u64 {
        match self.source {
            Source::Stored(_) => 0,
            Source::Repacked(_) => (self.rows * self.columns * 4) as u64,
        }
    }
}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = matches!(self.source, Source::Stored(_));
        f.debug_struct("Words")
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .field("stored", &stored)
            .finish()
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
    fn codes_of_any_width_straddle_words_in_both_directions() {
        // The codes 0 … 31 of five bits each.
        let mut stream = [0u8; 20];
        for code in 0..32usize {
            for bit in (0..5).filter(|bit| code >> bit & 1 == 1) {
                stream[(code * 5 + bit) / 8] |= 1 << ((code * 5 + bit) % 8);
            }
        }
        let (row, column) =
            (WordMatrix::new(&stream, 1, 5).unwrap(), WordMatrix::new(&stream, 5, 1).unwrap());
        for code in 0..32 {
            assert_eq!(usize::from(row.code_along(0, code, 5)), code);
            assert_eq!(usize::from(column.code_down(code, 0, 5)), code);
        }
    }

    #[test]
    fn repacked_words_are_made_once_and_only_when_wanted() {
        let made = std::sync::atomic::AtomicUsize::new(0);
        let words = Words::repacked(2, 1, |out| {
            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            out[0] = 7;
        });
        let words = words.unwrap();
        let copy = words.clone();
        assert_eq!(words.made_bytes(), 8);
        assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 0);
        assert_eq!((words.matrix().word(0, 0), copy.bytes().len()), (7, 8));
        assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(Words::repacked(usize::MAX, 2, |_| ()).is_none());
    }

    #[test]
    fn a_wrong_length_is_no_matrix() {
        assert!(WordMatrix::new(&[0; 8], 1, 1).is_none());
        assert!(WordMatrix::new(&[], usize::MAX, usize::MAX).is_none());
    }
}
