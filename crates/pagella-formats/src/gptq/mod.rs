//! GPTQ: 4 bits, asymmetric, packed along the inputs, with or without activation order.

mod dequant;
pub(crate) mod layout;

use half::{bf16, f16};

use crate::dtype::Dtype;
use crate::linear::Columns;
use crate::tensor::TensorView;
use crate::words::WordMatrix;

/// A GPTQ linear, borrowed from its file. Every `col` below is a stored column.
#[derive(Clone, Debug)]
pub struct GptqLinear<'a> {
    /// Base name of its tensors.
    pub name: String,
    /// Rows of the matrix, a multiple of 8.
    pub in_features: usize,
    /// Outputs, padding excluded.
    pub out_features: usize,
    /// Which stored columns are its outputs.
    pub columns: Columns,
    /// Number of groups.
    pub groups: usize,
    /// Rows per group when row `k` is in group `k / group_rows`; `None` with activation order.
    pub group_rows: Option<usize>,
    /// Group of every input row, `[in_features]`, each below `groups`.
    pub group_of_row: Vec<u32>,
    /// Packed codes, `[in_features / 8, stored columns]`, low nibble = lowest row.
    pub words: WordMatrix<'a>,
    /// Packed zero codes, `[groups, stored columns / 8]`, low nibble = lowest column.
    pub zeros: WordMatrix<'a>,
    /// What to add to a stored zero code: 1 in the original format, 0 in `gptq_v2`.
    pub zero_offset: u8,
    /// Scales, `[groups, stored columns]`.
    pub scales: ScaleMatrix<'a>,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from.
    pub tensors: Vec<TensorView<'a>>,
}

impl GptqLinear<'_> {
    /// The 4-bit code of an input row and column.
    pub fn code(&self, row: usize, col: usize) -> u8 {
        (self.words.word(row / 8, col) >> (4 * (row % 8)) & 15) as u8
    }

    /// The zero point of a group and column, 0 to 16; a stored 15 plus one does not wrap.
    pub fn zero(&self, group: usize, col: usize) -> u8 {
        self.zeros.nibble(group, col) + self.zero_offset
    }

    /// The scale of a group and column.
    pub fn scale(&self, group: usize, col: usize) -> f16 {
        self.scales.at(group, col)
    }

    /// The weight of an input row and column as the format defines it, `(code − zero) · scale`;
    /// f32 holds the product exactly. Half-precision programs round it, see
    /// [`GptqLinear::dequantize`].
    pub fn product(&self, row: usize, col: usize) -> f32 {
        let group = self.group_of_row.get(row).map_or(0, |group| *group as usize);
        let centred = f32::from(self.code(row, col)) - f32::from(self.zero(group, col));
        centred * self.scale(group, col).to_f32()
    }

    /// Bytes of its columns: codes, zero codes, scales and, with activation order, the row groups.
    pub fn weight_bytes(&self) -> u64 {
        let (rows, columns) = (self.in_features as u64, self.columns.len() as u64);
        let scale_bytes = self.scales.dtype.bits().unwrap_or(16) / 8;
        let per_group = columns / 2 + columns * scale_bytes;
        let order_bytes = if self.group_rows.is_none() { rows * 4 } else { 0 };
        rows * columns / 2 + self.groups as u64 * per_group + order_bytes
    }
}

/// Scales of any float type, read as binary16.
///
/// Invariant: the bytes are exactly `rows · columns` elements of F16, BF16 or F32.
#[derive(Clone, Copy, Debug)]
pub struct ScaleMatrix<'a> {
    bytes: &'a [u8],
    columns: usize,
    dtype: Dtype,
}

impl<'a> ScaleMatrix<'a> {
    /// Takes `bytes` as a matrix; `None` when the length or the type does not fit.
    pub fn new(bytes: &'a [u8], rows: usize, columns: usize, dtype: Dtype) -> Option<Self> {
        let element_bytes = usize::try_from(dtype.bits()?).ok()? / 8;
        let len = rows.checked_mul(columns)?.checked_mul(element_bytes)?;
        (dtype.is_weight_float() && bytes.len() == len).then_some(Self { bytes, columns, dtype })
    }

    /// The scale at `(row, col)`, rounded to binary16.
    #[allow(clippy::indexing_slicing, reason = "the length is checked once, in `new`")]
    pub fn at(&self, row: usize, col: usize) -> f16 {
        let at = row * self.columns + col;
        let pair = |at: usize| [self.bytes[at * 2], self.bytes[at * 2 + 1]];
        match self.dtype {
            Dtype::F32 => {
                let ([a, b], [c, d]) = (pair(at * 2), pair(at * 2 + 1));
                f16::from_f32(f32::from_le_bytes([a, b, c, d]))
            }
            Dtype::BF16 => f16::from_f32(bf16::from_le_bytes(pair(at)).to_f32()),
            _ => f16::from_le_bytes(pair(at)),
        }
    }
}
