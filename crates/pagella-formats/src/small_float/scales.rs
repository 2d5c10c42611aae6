//! Scales of groups of codes: what they are stored as, and which weight has which.

use half::{bf16, f16};

use super::number::{e4m3, e8m0};

/// Scales by number.
#[derive(Clone, Debug)]
pub enum ScaleValues<'a> {
    /// Little-endian binary32.
    F32(&'a [u8]),
    /// Little-endian binary16.
    F16(&'a [u8]),
    /// Little-endian bfloat16.
    Bf16(&'a [u8]),
    /// Exponents of two.
    E8m0(&'a [u8]),
    /// E4M3 under one scale for all.
    E4m3(&'a [u8], TensorScale),
    /// Codes of scales that have scales themselves.
    Nested(NestedScales<'a>),
}

/// The one scale over all scales of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TensorScale {
    /// Scales are multiplied with it.
    Multiply(f32),
    /// Scales are divided by it.
    Divide(f32),
}

impl TensorScale {
    /// A scale under this one, rounded once.
    pub fn apply(self, scale: f32) -> f32 {
        match self {
            TensorScale::Multiply(factor) => scale * factor,
            TensorScale::Divide(divisor) => scale / divisor,
        }
    }
}

/// Scales in 8 bits: `map[code] · absmax + offset`, two roundings in f32.
#[derive(Clone, Debug)]
pub struct NestedScales<'a> {
    /// One code per scale.
    pub codes: &'a [u8],
    /// What the codes mean, `[256]`.
    pub map: Vec<f32>,
    /// Scales of the scales.
    pub absmax: Vec<f32>,
    /// Scales that share one of them.
    pub shared_by: usize,
    /// Added to every scale.
    pub offset: f32,
}

impl ScaleValues<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            ScaleValues::F32(bytes) => bytes.len() / 4,
            ScaleValues::F16(bytes) | ScaleValues::Bf16(bytes) => bytes.len() / 2,
            ScaleValues::E8m0(bytes) | ScaleValues::E4m3(bytes, _) => bytes.len(),
            ScaleValues::Nested(nested) => nested.codes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of them in the file, those of the second level included.
    pub fn bytes(&self) -> usize {
        match self {
            ScaleValues::F32(bytes)
            | ScaleValues::F16(bytes)
            | ScaleValues::Bf16(bytes)
            | ScaleValues::E8m0(bytes) => bytes.len(),
            ScaleValues::E4m3(bytes, _) => bytes.len() + 4,
            ScaleValues::Nested(nested) => {
                nested.codes.len() + 4 * (nested.map.len() + nested.absmax.len())
            }
        }
    }

    /// Scale number `index`; NaN when there is none.
    pub fn at(&self, index: usize) -> f32 {
        let found = match self {
            ScaleValues::F32(bytes) => {
                bytes.as_chunks().0.get(index).map(|bytes| f32::from_le_bytes(*bytes))
            }
            ScaleValues::F16(bytes) => {
                bytes.as_chunks().0.get(index).map(|bytes| f16::from_le_bytes(*bytes).to_f32())
            }
            ScaleValues::Bf16(bytes) => {
                bytes.as_chunks().0.get(index).map(|bytes| bf16::from_le_bytes(*bytes).to_f32())
            }
            ScaleValues::E8m0(bytes) => bytes.get(index).map(|byte| e8m0(*byte)),
            ScaleValues::E4m3(bytes, scale) => {
                bytes.get(index).map(|byte| scale.apply(e4m3(*byte)))
            }
            ScaleValues::Nested(nested) => nested.at(index),
        };
        found.unwrap_or(f32::NAN)
    }
}

impl NestedScales<'_> {
    fn at(&self, index: usize) -> Option<f32> {
        let value = self.map.get(usize::from(*self.codes.get(index)?))?;
        Some(value * self.absmax.get(index / self.shared_by)? + self.offset)
    }
}

/// Which weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Rectangles of the stored matrix; those at its ends may be smaller.
    Grid {
        /// Stored rows of a rectangle.
        rows: usize,
        /// Stored columns of a rectangle.
        columns: usize,
        /// Rectangles side by side.
        stride: usize,
    },
    /// So many weights that follow one another, whatever the rows.
    Run(usize),
}

impl Sharing {
    /// One scale for all weights.
    pub const ONE: Sharing = Sharing::Grid { rows: usize::MAX, columns: usize::MAX, stride: 0 };

    /// Number of the scale of a stored row and column, in rows of `width` columns.
    pub(super) fn index(self, row: usize, column: usize, width: usize) -> usize {
        match self {
            Sharing::Grid { rows, columns, stride } => row / rows * stride + column / columns,
            Sharing::Run(weights) => (row * width + column) / weights,
        }
    }
}
