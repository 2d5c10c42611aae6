//! Unquantised linears: F16, BF16 or F32, stored `[out, in]` or, transposed, `[in, out]`.

use std::ops::Range;

use half::{bf16, f16};

use crate::checkpoint::Checkpoint;
use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::exl3::rotate::ROTATED;
use crate::linear::{Cut, Found, LinearRequest, Reader, Stored, read_bias, stored_fields};
use crate::registry::{LinearKind, WeightFormat};
use crate::tensor::TensorView;
use crate::unsupported;

/// Unquantised weights in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "plain",
    id: "none",
    methods: &[],
    tensors: &[".weight", ""],
    is_source: true,
    find: |checkpoint, base| {
        checkpoint.tensor(&format!("{base}.weight")).or_else(|| checkpoint.tensor(base))
    },
    reader: Reader::Plain(read),
    stacked: true,
};

/// An unquantised linear, borrowed from its file.
///
/// Invariant: `data` holds whole rows of `stride` elements, and every range of outputs and all
/// inputs lie inside.
#[derive(Clone, Debug)]
pub struct PlainLinear<'a> {
    /// Base name of its tensors.
    pub name: String,
    /// Length of the vectors it takes.
    pub in_features: usize,
    /// Length of the vectors it gives.
    pub out_features: usize,
    /// F16, BF16 or F32.
    pub dtype: Dtype,
    /// Whether `data` is `[in, out]` instead of `[out, in]`.
    pub transposed: bool,
    /// Stored rows, row-major, little-endian, possibly unaligned; other parts of a fused tensor
    /// and padding included.
    pub data: &'a [u8],
    /// Elements per stored row.
    pub stride: usize,
    /// Stored output indices that make this linear, in order.
    pub ranges: Vec<Range<usize>>,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from.
    pub tensors: Vec<TensorView<'a>>,
}

impl<'a> Stored<'a> for PlainLinear<'a> {
    stored_fields!();

    fn kind(&self) -> LinearKind {
        LinearKind::Plain
    }

    fn stored_columns(&self) -> usize {
        self.stored_outputs()
    }

    fn weight_bytes(&self) -> u64 {
        PlainLinear::weight_bytes(self)
    }

    fn value_dtype(&self) -> Dtype {
        self.dtype
    }

    fn values(&self) -> Vec<f32> {
        self.dequantize()
    }

    fn widths(&self) -> Vec<(u8, u64)> {
        let bits = 8 * self.element_bytes() as u8;
        vec![(bits, self.in_features as u64 * self.out_features as u64)]
    }
}

impl<'a> PlainLinear<'a> {
    /// Outputs of the stored tensor, other parts of a fused one included.
    pub fn stored_outputs(&self) -> usize {
        if self.transposed {
            self.stride
        } else {
            self.data.len() / (self.stride * self.element_bytes()).max(1)
        }
    }

    /// Bytes of its weights.
    pub fn weight_bytes(&self) -> u64 {
        self.in_features as u64 * self.out_features as u64 * self.element_bytes() as u64
    }

    /// The stored weights of output `out`, `[in_features]` elements; `None` when transposed.
    pub fn row_bytes(&self, out: usize) -> Option<&'a [u8]> {
        if self.transposed {
            return None;
        }
        let begin = self.stored_output(out)? * self.stride * self.element_bytes();
        self.data.get(begin..begin + self.in_features * self.element_bytes())
    }

    /// The weight from input `input` to output `out`, exactly.
    ///
    /// # Panics
    /// When either index is out of range.
    pub fn weight(&self, out: usize, input: usize) -> f32 {
        assert!(out < self.out_features && input < self.in_features, "({out}, {input})");
        let stored = self.stored_output(out).unwrap_or_default();
        let (row, column) = if self.transposed { (input, stored) } else { (stored, input) };
        self.element(row * self.stride + column)
    }

    /// The matrix `[in_features, out_features]`, row-major, like the quantised kinds.
    pub fn dequantize(&self) -> Vec<f32> {
        let mut matrix = vec![0.0; self.in_features * self.out_features];
        for (out, stored) in self.ranges.iter().cloned().flatten().enumerate() {
            let column = matrix.iter_mut().skip(out).step_by(self.out_features.max(1));
            for (input, weight) in column.enumerate() {
                let (row, column) = if self.transposed { (input, stored) } else { (stored, input) };
                *weight = self.element(row * self.stride + column);
            }
        }
        matrix
    }

    /// The weights of all outputs, `[out_features, in_features]`, row-major, exactly.
    pub fn rows_f32(&self) -> Vec<f32> {
        let outputs = self.ranges.iter().cloned().flatten();
        outputs
            .flat_map(|stored| {
                (0..self.in_features).map(move |input| {
                    let (row, column) =
                        if self.transposed { (input, stored) } else { (stored, input) };
                    self.element(row * self.stride + column)
                })
            })
            .collect()
    }

    fn element_bytes(&self) -> usize {
        if self.dtype == Dtype::F32 { 4 } else { 2 }
    }

    /// Stored index of an output.
    fn stored_output(&self, out: usize) -> Option<usize> {
        let mut left = out;
        for range in &self.ranges {
            if left < range.len() {
                return Some(range.start + left);
            }
            left -= range.len();
        }
        None
    }

    #[allow(clippy::indexing_slicing, reason = "every element lies inside, by the invariant")]
    fn element(&self, at: usize) -> f32 {
        match self.dtype {
            Dtype::F32 => {
                let b = &self.data[at * 4..at * 4 + 4];
                f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
            Dtype::BF16 => bf16::from_le_bytes([self.data[at * 2], self.data[at * 2 + 1]]).to_f32(),
            _ => f16::from_le_bytes([self.data[at * 2], self.data[at * 2 + 1]]).to_f32(),
        }
    }
}

/// Reads the weights of `found` and checks type and shape.
pub(crate) fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<PlainLinear<'a>> {
    let weight = found.weight;
    if !weight.dtype.is_weight_float() {
        return Err(other_dtype(checkpoint, found));
    }
    // Tools that split a fused tensor write the parts in the usual order.
    let transposed = request.transposed && (found.fused || request.fused.is_none());
    let (data, cut) = match stacked_inputs(request, found) {
        Some(rows) => {
            let cut =
                Cut { declared: request.out_features, ranges: vec![whole(request.out_features)] };
            (input_rows(found, rows)?, cut)
        }
        None => {
            let cut = Cut::new(request, found, request.out_features)?;
            let wanted = if transposed {
                (request.in_features, cut.declared)
            } else {
                (cut.declared, request.in_features)
            };
            let (shape, data) = matrix(found)?;
            if shape != wanted && !is_padded(checkpoint, found, shape, wanted, transposed) {
                return Err(weight.wrong_shape(format!("[{}, {}]", wanted.0, wanted.1)));
            }
            (data, cut)
        }
    };
    let ((_, stride), _) = matrix(found)?;
    let mut tensors = vec![weight];
    let bias = read_bias(checkpoint, request, found, (cut.declared, cut.declared), &cut.ranges)?;
    let bias = bias.map(|(values, tensor)| {
        tensors.push(tensor);
        values
    });
    Ok(PlainLinear {
        name: found.base.clone(),
        in_features: request.in_features,
        out_features: request.out_features,
        dtype: weight.dtype,
        transposed,
        data,
        stride,
        ranges: cut.ranges,
        bias,
        tensors,
    })
}

/// Whether a matrix is larger than needed because the converter to EXL3 filled it up: zeros follow its
/// rows and columns up to multiples of what that format rotates.
fn is_padded(
    checkpoint: &Checkpoint,
    found: &Found<'_>,
    shape: (usize, usize),
    wanted: (usize, usize),
    transposed: bool,
) -> bool {
    let fits = |len: usize, wanted: usize| {
        len >= wanted
            && wanted.checked_next_multiple_of(ROTATED).is_some_and(|padded| len <= padded)
    };
    let alone = !transposed && !found.fused && found.slab.is_none();
    alone
        && fits(shape.0, wanted.0)
        && fits(shape.1, wanted.1)
        && checkpoint.names().any(|name| name.ends_with(".trellis"))
}

/// The matrix that is meant, with its bytes: the tensor, or one of those it stacks.
fn matrix<'a>(found: &Found<'a>) -> Result<((usize, usize), &'a [u8])> {
    let weight = &found.weight;
    let Some((index, count)) = found.slab else {
        return Ok((weight.matrix_shape()?, weight.data));
    };
    match *weight.shape {
        [matrices, rows, columns] if matrices == count && index < count => {
            let bytes = weight.data.len() / count;
            let data = weight.data.get(index * bytes..(index + 1) * bytes);
            Ok(((rows, columns), data.unwrap_or_default()))
        }
        _ => Err(weight.wrong_shape(format!("{count} stacked matrices"))),
    }
}

fn whole(len: usize) -> Range<usize> {
    Range { start: 0, end: len }
}

/// The input rows to take when the tensor stacks several `[in, out]` matrices along the inputs.
fn stacked_inputs(request: &LinearRequest<'_>, found: &Found<'_>) -> Option<Range<usize>> {
    let part = request.fused.filter(|_| found.fused && request.transposed)?;
    let [range] = part.rows else { return None };
    let stacked = found.weight.shape == [part.total_out, request.out_features];
    (stacked && range.len() == request.in_features).then(|| range.clone())
}

/// The bytes of some rows of a matrix.
fn input_rows<'a>(found: &Found<'a>, rows: Range<usize>) -> Result<&'a [u8]> {
    let (stored_rows, _) = found.weight.matrix_shape()?;
    let row_bytes = found.weight.data.len() / stored_rows.max(1);
    let bytes = rows.start.saturating_mul(row_bytes)..rows.end.saturating_mul(row_bytes);
    found.weight.data.get(bytes).ok_or_else(|| FormatError::FusedSplit {
        path: found.weight.file.to_owned(),
        tensor: found.weight.name.to_owned(),
        begin: rows.start,
        end: rows.end,
        reason: "the range leaves the tensor",
    })
}

/// Why a weight that is not F16, BF16 or F32 cannot be used.
fn other_dtype(checkpoint: &Checkpoint, found: &Found<'_>) -> FormatError {
    let weight = &found.weight;
    unsupported::betrayed(checkpoint, &found.base)
        .unwrap_or_else(|| weight.wrong_dtype("F16, BF16 or F32"))
}

#[cfg(test)]
mod tests;
