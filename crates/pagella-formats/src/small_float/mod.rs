//! Weights as codes of small floats, in groups that share a scale: what MXFP4, FP8, NVFP4 and the
//! 4-bit formats of bitsandbytes have in common.
//!
//! A weight is `value(code) · scale`, one rounding in f32 and none where the scale is a power of two.
//! Programs that compute in half precision round it once more; that is their arithmetic, not the
//! format. The folders of the formats find tensors and check shapes; codes and scales are read where
//! they are needed, and [`SmallFloatLinear::check`] reads all of them once.

mod number;
mod scales;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::Range;

pub use number::{Number, e4m3, e5m2, e8m0};
pub use scales::{NestedScales, ScaleValues, Sharing, TensorScale};

use crate::checkpoint::Checkpoint;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::linear::{Cut, Found, LinearRequest, Stored, read_bias, spread, stored_fields};
use crate::registry::LinearKind;
use crate::tensor::TensorView;

/// Room that products keep below the largest f32: kernels move powers of two between factors.
const HEADROOM: f32 = 65_536.0;

/// A linear of small floats, borrowed from its file.
///
/// Invariant: `codes` holds whole rows, every stored output of `ranges` and all inputs lie inside, and
/// every one of their weights has a scale.
#[derive(Clone, Debug)]
pub struct SmallFloatLinear<'a> {
    /// Base name of its tensors.
    pub name: String,
    /// The format it was found as.
    pub kind: LinearKind,
    /// Length of the vectors it takes.
    pub in_features: usize,
    /// Length of the vectors it gives.
    pub out_features: usize,
    /// What codes mean.
    pub number: Number,
    /// The codes.
    pub codes: Codes<'a>,
    /// The scales.
    pub scales: ScaleValues<'a>,
    /// Which weights have which.
    pub sharing: Sharing,
    /// Stored output indices that make this linear, in order.
    pub ranges: Vec<Range<usize>>,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from: codes, scales, the rest.
    pub tensors: Vec<TensorView<'a>>,
}

/// A matrix of codes.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    /// Of all stored rows.
    pub data: &'a [u8],
    /// How codes lie in bytes.
    pub order: CodeOrder,
    /// Codes of a stored row.
    pub stride: usize,
    /// Whether stored rows are inputs.
    pub transposed: bool,
}

/// How codes lie in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrder {
    /// One each.
    Bytes,
    /// Two, the first one in the low half.
    LowFirst,
    /// Two, the first one in the high half.
    HighFirst,
}

impl Codes<'_> {
    /// Code number `at` of all.
    fn code(&self, at: usize) -> u8 {
        let byte = |at: usize| self.data.get(at).copied().unwrap_or_default();
        let half = |at: usize, high: bool| if high { byte(at) >> 4 } else { byte(at) & 15 };
        match self.order {
            CodeOrder::Bytes => byte(at),
            CodeOrder::LowFirst => half(at / 2, at % 2 == 1),
            CodeOrder::HighFirst => half(at / 2, at.is_multiple_of(2)),
        }
    }

    fn len(&self) -> usize {
        match self.order {
            CodeOrder::Bytes => self.data.len(),
            CodeOrder::LowFirst | CodeOrder::HighFirst => 2 * self.data.len(),
        }
    }
}

impl<'a> SmallFloatLinear<'a> {
    /// Stored index of every output.
    pub fn stored_outputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.iter().cloned().flatten()
    }

    fn place(&self, stored: usize, input: usize) -> (usize, usize) {
        if self.codes.transposed { (input, stored) } else { (stored, input) }
    }

    /// The code between a stored output and an input.
    pub fn code(&self, stored: usize, input: usize) -> u8 {
        let (row, column) = self.place(stored, input);
        self.codes.code(row * self.codes.stride + column)
    }

    /// The codes of 8 bits of a stored output, if they lie side by side.
    pub fn row_bytes(&self, stored: usize) -> Option<&'a [u8]> {
        let Codes { data, order: CodeOrder::Bytes, stride, transposed: false } = self.codes else {
            return None;
        };
        data.get(stored * stride..(stored + 1) * stride)
    }

    /// Number of the scale between a stored output and an input.
    pub fn scale_index(&self, stored: usize, input: usize) -> usize {
        let (row, column) = self.place(stored, input);
        self.sharing.index(row, column, self.codes.stride)
    }

    /// The scale between a stored output and an input.
    pub fn scale(&self, stored: usize, input: usize) -> f32 {
        self.scales.at(self.scale_index(stored, input))
    }

    /// The weight between a stored output and an input.
    pub fn weight(&self, stored: usize, input: usize) -> f32 {
        self.number.value(self.code(stored, input)) * self.scale(stored, input)
    }

    /// Codes of 4 bits of eight inputs of a stored output, the first one lowest; codes beyond the
    /// inputs are 0.
    pub fn eight_codes(&self, stored: usize, first: usize) -> u32 {
        let at = stored * self.codes.stride + first;
        let whole = first + 8 <= self.in_features && at.is_multiple_of(2) && !self.codes.transposed;
        let bytes = self.codes.data.get(at / 2..).and_then(|bytes| bytes.first_chunk());
        if let (true, Some(bytes)) = (whole, bytes) {
            let word = u32::from_le_bytes(*bytes);
            return match self.codes.order {
                CodeOrder::HighFirst => (word & 0x0F0F_0F0F) << 4 | word >> 4 & 0x0F0F_0F0F,
                CodeOrder::LowFirst | CodeOrder::Bytes => word,
            };
        }
        let inputs = (first..self.in_features).take(8).zip((0..).step_by(4));
        inputs.fold(0, |word, (input, shift)| {
            word | u32::from(self.code(stored, input) & 15) << shift
        })
    }

    /// Inputs that share a scale with all before them in runs of this many, whatever the output.
    pub fn group_inputs(&self) -> usize {
        let inputs = match self.sharing {
            Sharing::Grid { rows, columns, .. } => {
                if self.codes.transposed {
                    rows
                } else {
                    columns
                }
            }
            Sharing::Run(weights) => gcd(self.codes.stride, weights),
        };
        inputs.clamp(1, self.in_features.max(1))
    }

    /// Reads every code and scale of the linear: none may be infinite or NaN, or make a weight so.
    pub fn check(&self) -> Result<()> {
        let (Some(codes), Some(scales)) = (self.tensors.first(), self.tensors.get(1)) else {
            return Ok(());
        };
        if let Some(index) = self.number.position_not_finite(self.codes.data) {
            return Err(codes.bad_weights(format!("holds a NaN as code {index}")));
        }
        let most = f32::MAX / (self.number.largest().max(1.0) * HEADROOM);
        // Offsets of a second level may reach a little below zero.
        let least = if matches!(self.scales, ScaleValues::Nested(_)) { -most } else { 0.0 };
        for index in 0..self.scales.len() {
            let scale = self.scales.at(index);
            if !(least..=most).contains(&scale) {
                return Err(scales.bad_weights(format!("gives {scale} as scale {index}")));
            }
        }
        if self.kind == LinearKind::Fp8 && self.scales_hold_zero() {
            let stored = self.stored_outputs().find_map(|stored| {
                let is_lost = |input: &usize| {
                    self.code(stored, *input) & 0x7F != 0 && self.scale(stored, *input) == 0.0
                };
                Some((stored, (0..self.in_features).find(is_lost)?))
            });
            if let Some((output, input)) = stored {
                let place = format!("is 0 at output {output}, input {input}, which has a weight");
                return Err(scales.bad_weights(place));
            }
        }
        Ok(())
    }

    fn scales_hold_zero(&self) -> bool {
        (0..self.scales.len()).any(|index| self.scales.at(index) == 0.0)
    }

    /// Words for the groups: how many weights share a scale, and in what it is stored.
    fn groups(&self) -> String {
        match self.sharing {
            Sharing::Run(weights) => format!("groups of {weights}"),
            Sharing::Grid { rows: usize::MAX, columns: usize::MAX, .. } => "one scale".to_owned(),
            Sharing::Grid { rows: 1, columns: usize::MAX, .. }
            | Sharing::Grid { rows: usize::MAX, columns: 1, .. } => "a scale per output".to_owned(),
            Sharing::Grid { rows: 1, columns, .. } => format!("groups of {columns}"),
            Sharing::Grid { rows, columns, .. } => format!("groups of {rows} × {columns}"),
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'a> Stored<'a> for SmallFloatLinear<'a> {
    stored_fields!();

    fn kind(&self) -> LinearKind {
        self.kind
    }

    fn stored_columns(&self) -> usize {
        match self.codes.transposed {
            true => self.codes.stride,
            false => self.codes.len() / self.codes.stride.max(1),
        }
    }

    fn weight_bytes(&self) -> u64 {
        let own = self.in_features as u64 * self.out_features as u64;
        let all = (self.codes.len() as u64).max(1);
        let scales = u128::from(self.scales.bytes() as u64) * u128::from(own) / u128::from(all);
        own * u64::from(self.number.bits()) / 8 + scales as u64
    }

    fn value_dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn values(&self) -> Vec<f32> {
        let outputs: Vec<usize> = self.stored_outputs().collect();
        let row = |input| outputs.iter().map(move |stored| self.weight(*stored, input));
        (0..self.in_features).flat_map(row).collect()
    }

    fn sample(&self) -> Vec<f32> {
        let stored: Vec<usize> = self.stored_outputs().collect();
        let outputs = spread(stored.len()).filter_map(|at| stored.get(at).copied());
        spread(self.in_features)
            .flat_map(|input| outputs.clone().map(move |output| self.weight(output, input)))
            .collect()
    }

    fn widths(&self) -> Vec<(u8, u64)> {
        vec![(self.number.bits(), self.in_features as u64 * self.out_features as u64)]
    }

    fn details(&self) -> String {
        let number = match &self.number {
            Number::E2m1 => "E2M1",
            Number::E4m3 => "E4M3",
            Number::E5m2 => "E5M2",
            // The table of nf4 begins at its least value, that of fp4 at 0.
            Number::Table([first, ..]) if *first == 0.0 => "fp4",
            Number::Table(_) => "nf4",
        };
        let scales = match &self.scales {
            ScaleValues::F32(_) | ScaleValues::F16(_) | ScaleValues::Bf16(_) => "",
            ScaleValues::E8m0(_) => ", scales E8M0",
            ScaleValues::E4m3(..) => ", scales E4M3",
            ScaleValues::Nested(_) => ", scales in 8 bits",
        };
        format!("{number}, {}{scales}", self.groups())
    }

    fn check_values(&self) -> Result<()> {
        self.check()
    }
}

/// What the folder of a format has found out; the rest is the same for all.
pub(crate) struct FloatParts<'a> {
    pub kind: LinearKind,
    pub number: Number,
    pub codes: Codes<'a>,
    pub scales: ScaleValues<'a>,
    pub sharing: Sharing,
    /// Codes first, then scales.
    pub tensors: Vec<TensorView<'a>>,
}

/// Adds cut and bias to the parts.
pub(crate) fn assemble<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
    cut: Cut,
    parts: FloatParts<'a>,
) -> Result<SmallFloatLinear<'a>> {
    let FloatParts { kind, number, codes, scales, sharing, mut tensors } = parts;
    let bias = read_bias(checkpoint, request, found, (cut.declared, cut.declared), &cut.ranges)?;
    let bias = bias.map(|(values, tensor)| {
        tensors.push(tensor);
        values
    });
    Ok(SmallFloatLinear {
        name: found.base.clone(),
        kind,
        in_features: request.in_features,
        out_features: request.out_features,
        number,
        codes,
        scales,
        sharing,
        ranges: cut.ranges,
        bias,
        tensors,
    })
}

/// The bytes of the matrix that is meant, of a tensor that stacks `count` of them.
pub(crate) fn slab<'a>(tensor: &TensorView<'a>, slab: Option<(usize, usize)>) -> &'a [u8] {
    let Some((index, count)) = slab else { return tensor.data };
    let bytes = tensor.data.len() / count.max(1);
    tensor.data.get(index * bytes..(index + 1) * bytes).unwrap_or_default()
}

/// The shape of one of `count` stacked matrices, or of the tensor where none are stacked; `None` when
/// that is not their number.
pub(crate) fn slab_shape(shape: &[usize], slab: Option<(usize, usize)>) -> Option<&[usize]> {
    match slab {
        None => Some(shape),
        Some((index, count)) => match shape {
            [matrices, rest @ ..] if *matrices == count && index < count => Some(rest),
            _ => None,
        },
    }
}

/// The extents of a shape that is needed, after that of the stack.
pub(crate) fn shape_words(slab: Option<(usize, usize)>, extents: &[usize]) -> String {
    let stack = slab.map(|(_, count)| count);
    let all: Vec<String> =
        stack.into_iter().chain(extents.iter().copied()).map(|extent| extent.to_string()).collect();
    format!("[{}]", all.join(", "))
}
