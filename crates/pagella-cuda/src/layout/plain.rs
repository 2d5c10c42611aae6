//! Planning unquantised linears: f16 weights as they are, others scaled by a power of two into the
//! range of f16, f32 ones in two parts.
//!
//! A part of a weight `w` in the strips is an f16 of `w · 2^-e`, and results are multiplied by
//! `2^e`. Of f32 weights the rows `0..k/2` hold the upper part, f16 of the value, and the rows from
//! `k/2` on what it leaves, again as f16; both multiply the same input feature.

use std::borrow::Cow;
use std::ops::Range;

use pagella_formats::{Dtype, Linear, PlainLinear};

use super::BLOCK_ROWS;
use super::chunk::BlockShape;
use super::plan::{LayoutKind, NO_ROW, Source, T32Plan, assemble, unless_identity};

/// Width of a stored weight.
const BITS: u8 = 16;

/// The largest magnitude of scaled weights lies in `[2^14, 2^15)`.
const TOP_EXPONENT: i32 = 14;

/// Exponents for which both `2^e` and `2^-e` are normal f32 numbers.
const EXPONENTS: Range<i32> = -112..114;

/// Type of uploaded elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE binary16: copied bit for bit.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32: in two parts.
    F32,
}

impl Element {
    /// Whether weights are scaled into the range of f16 first.
    pub fn is_scaled(self) -> bool {
        self != Element::F16
    }

    /// Packed rows per row of the matrix, once padded.
    fn parts(self) -> usize {
        if self == Element::F32 { 2 } else { 1 }
    }
}

/// What must be uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainBytes {
    /// These ranges of the linear's bytes, back to back.
    Stored(Vec<Range<usize>>),
    /// The dequantised matrix `[in, out]` in f16.
    Dequantised,
}

/// How plain strips are made: element `(column, row)` of the uploaded bytes is at
/// `column · column_stride + row · row_stride`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainSource {
    /// Type of the elements.
    pub element: Element,
    /// Elements between columns (outputs).
    pub column_stride: u64,
    /// Elements between rows (inputs).
    pub row_stride: u64,
    /// Packed rows that hold weights or their upper parts; the rest holds lower parts.
    pub k_upper: usize,
    /// The bytes.
    pub bytes: PlainBytes,
}

impl PlainSource {
    /// The bytes to upload, back to back.
    pub fn pieces<'l>(&self, linear: &'l Linear<'_>) -> Vec<Cow<'l, [u8]>> {
        let f16_bytes = |matrix: Vec<half::f16>| {
            Cow::Owned(matrix.into_iter().flat_map(half::f16::to_le_bytes).collect())
        };
        match (linear, &self.bytes) {
            (Linear::Plain(linear), PlainBytes::Stored(ranges)) => {
                ranges.iter().map(|range| Cow::Borrowed(&linear.data[range.clone()])).collect()
            }
            (Linear::Gptq(linear), _) => vec![f16_bytes(linear.dequantize())],
            (Linear::Exl2(linear), _) => vec![f16_bytes(linear.dequantize())],
            (_, PlainBytes::Dequantised | PlainBytes::Stored(_)) => Vec::new(), // No plan says so.
        }
    }
}

/// The exponent `e` for weights whose largest magnitude has these f32 bits; it brings that magnitude
/// just below 2^15.
pub fn exponent(largest_bits: u32) -> i32 {
    let exponent = (largest_bits >> 23 & 0xff) as i32 - 127 - TOP_EXPONENT;
    exponent.clamp(EXPONENTS.start, EXPONENTS.end - 1)
}

/// `2^e`, for exponents that [`exponent`] gives and their negatives.
pub fn power_of_two(e: i32) -> f32 {
    f32::from_bits(((e + 127).clamp(1, 254) as u32) << 23)
}

/// Plans an unquantised linear.
pub(super) fn plan(linear: &PlainLinear<'_>) -> T32Plan {
    let element = match linear.dtype {
        Dtype::F32 => Element::F32,
        Dtype::BF16 => Element::Bf16,
        _ => Element::F16,
    };
    let stride = linear.stride as u64;
    // Outputs that are stored rows are uploaded one by one, in their order; else everything is.
    let (strides, bytes, columns) = if linear.transposed {
        let columns = unless_identity(linear.ranges.iter().cloned().flatten());
        ((1, stride), std::iter::once(0..linear.data.len()).collect(), columns)
    } else {
        let row_bytes = linear.stride * if element == Element::F32 { 4 } else { 2 };
        let bytes = |range: &Range<usize>| range.start * row_bytes..range.end * row_bytes;
        ((stride, 1), linear.ranges.iter().map(bytes).collect(), None)
    };
    assemble_plain(element, linear.in_features, linear.out_features, strides, columns, {
        PlainBytes::Stored(bytes)
    })
}

/// Plans f16 weights that the host dequantises: `[in, out]`.
pub(super) fn plan_dequantised(k_in: usize, n: usize) -> T32Plan {
    assemble_plain(Element::F16, k_in, n, (1, n as u64), None, PlainBytes::Dequantised)
}

fn assemble_plain(
    element: Element,
    k_in: usize,
    n: usize,
    (column_stride, row_stride): (u64, u64),
    columns: Option<Vec<u32>>,
    bytes: PlainBytes,
) -> T32Plan {
    let k_upper = k_in.next_multiple_of(BLOCK_ROWS);
    let k = k_upper * element.parts();
    let perm = (element.parts() > 1).then(|| {
        let rows = (0..k_upper).map(|row| if row < k_in { row as u32 } else { NO_ROW });
        rows.clone().chain(rows).collect()
    });
    // No scales: every block is a group of its own.
    let blocks: Vec<_> =
        (0..k / BLOCK_ROWS).map(|block| BlockShape { bits: BITS, group: block as u32 }).collect();
    let source = PlainSource { element, column_stride, row_stride, k_upper, bytes };
    assemble((LayoutKind::Plain, Source::Plain(source)), (k_in, n), &blocks, perm, columns)
}
