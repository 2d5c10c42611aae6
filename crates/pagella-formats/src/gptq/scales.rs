//! Scales of groups and columns: binary16 as GPTQ defines them, or any f32.

use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::Dtype;

/// Scales, `[groups, columns]`.
///
/// Invariant: there are exactly as many as rows times columns.
#[derive(Clone, Debug)]
pub struct ScaleMatrix<'a> {
    columns: usize,
    values: Values<'a>,
    /// Bytes that they take in their file.
    stored_bytes: usize,
}

#[derive(Clone, Debug)]
enum Values<'a> {
    /// Elements of F16, BF16 or F32, read as binary16.
    Narrowed { bytes: &'a [u8], dtype: Dtype },
    /// Exactly these; and whether binary16 holds them all.
    Exact { values: Arc<[f32]>, half: bool },
}

impl<'a> ScaleMatrix<'a> {
    /// Takes `bytes` as a matrix of scales that are rounded to binary16; `None` when the length or
    /// the type does not fit.
    pub fn new(bytes: &'a [u8], rows: usize, columns: usize, dtype: Dtype) -> Option<Self> {
        let element_bytes = usize::try_from(dtype.bits()?).ok()? / 8;
        let len = rows.checked_mul(columns)?.checked_mul(element_bytes)?;
        let fits = dtype.is_weight_float() && bytes.len() == len;
        let values = Values::Narrowed { bytes, dtype };
        fits.then_some(Self { columns, values, stored_bytes: len })
    }

    /// Takes `values` as they are, which were stored in so many bytes; `None` when they do not fill
    /// `rows`.
    pub fn exact(
        values: Vec<f32>,
        rows: usize,
        columns: usize,
        stored_bytes: usize,
    ) -> Option<Self> {
        let half = values.iter().all(|value| f16::from_f32(*value).to_f32() == *value);
        let fits = Some(values.len()) == rows.checked_mul(columns);
        let values = Values::Exact { values: values.into(), half };
        fits.then_some(Self { columns, values, stored_bytes })
    }

    /// The scale at `(row, col)`, rounded to binary16.
    #[allow(clippy::indexing_slicing, reason = "the length is checked once, in `new`")]
    pub fn at(&self, row: usize, col: usize) -> f16 {
        let at = row * self.columns + col;
        let (bytes, dtype) = match &self.values {
            Values::Narrowed { bytes, dtype } => (bytes, dtype),
            Values::Exact { values, .. } => return f16::from_f32(values[at]),
        };
        let pair = |at: usize| [bytes[at * 2], bytes[at * 2 + 1]];
        match dtype {
            Dtype::F32 => {
                let ([a, b], [c, d]) = (pair(at * 2), pair(at * 2 + 1));
                f16::from_f32(f32::from_le_bytes([a, b, c, d]))
            }
            Dtype::BF16 => f16::from_f32(bf16::from_le_bytes(pair(at)).to_f32()),
            _ => f16::from_le_bytes(pair(at)),
        }
    }

    /// The scale at `(row, col)` as the format means it.
    #[allow(clippy::indexing_slicing, reason = "the length is checked once, in `exact`")]
    pub fn value(&self, row: usize, col: usize) -> f32 {
        match &self.values {
            Values::Narrowed { .. } => self.at(row, col).to_f32(),
            Values::Exact { values, .. } => values[row * self.columns + col],
        }
    }

    /// Whether binary16 holds every scale as the format means it.
    pub fn is_half(&self) -> bool {
        match self.values {
            Values::Narrowed { .. } => true,
            Values::Exact { half, .. } => half,
        }
    }

    /// Bytes that the scales take besides their file.
    pub(crate) fn made_bytes(&self) -> u64 {
        match &self.values {
            Values::Narrowed { .. } => 0,
            Values::Exact { values, .. } => size_of_val::<[f32]>(values) as u64,
        }
    }

    /// Bytes that the scales take in their file.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }

    /// Index of the first scale that is infinite or NaN.
    pub(crate) fn not_finite(&self) -> Option<usize> {
        let is_odd = |half: f16| !half.is_finite();
        match &self.values {
            Values::Exact { values, .. } => values.iter().position(|value| !value.is_finite()),
            Values::Narrowed { bytes, dtype: Dtype::F32 } => {
                let single = |bytes: &[u8; 4]| f16::from_f32(f32::from_le_bytes(*bytes));
                bytes.as_chunks().0.iter().position(|bytes| is_odd(single(bytes)))
            }
            Values::Narrowed { bytes, dtype: Dtype::BF16 } => {
                let brain = |bytes: &[u8; 2]| f16::from_f32(bf16::from_le_bytes(*bytes).to_f32());
                bytes.as_chunks().0.iter().position(|bytes| is_odd(brain(bytes)))
            }
            Values::Narrowed { bytes, .. } => {
                bytes.as_chunks().0.iter().position(|bytes| is_odd(f16::from_le_bytes(*bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_every_float_type_are_rounded_to_binary16() {
        let f32s: Vec<u8> =
            [1.0f32, 1.0 + f32::EPSILON].into_iter().flat_map(f32::to_le_bytes).collect();
        let matrix = ScaleMatrix::new(&f32s, 2, 1, Dtype::F32).unwrap();
        assert_eq!((matrix.at(0, 0), matrix.at(1, 0)), (f16::ONE, f16::ONE));
        assert!(matrix.is_half());
        let matrix = ScaleMatrix::new(&[0x80, 0x3f, 0x00, 0x40], 1, 2, Dtype::BF16).unwrap();
        assert_eq!((matrix.at(0, 0), matrix.at(0, 1)), (f16::ONE, f16::from_f32(2.0)));
        assert!(ScaleMatrix::new(&[0; 4], 1, 1, Dtype::I32).is_none());
        assert!(ScaleMatrix::new(&[0; 3], 1, 1, Dtype::F32).is_none());
    }

    #[test]
    fn exact_scales_keep_what_binary16_would_lose() {
        let fine = 1.0 + f32::EPSILON;
        let matrix = ScaleMatrix::exact(vec![0.5, fine], 1, 2, 8).unwrap();
        assert_eq!((matrix.value(0, 1), matrix.at(0, 1)), (fine, f16::ONE));
        assert!(!matrix.is_half());
        assert!(ScaleMatrix::exact(vec![0.5, 2.0], 2, 1, 8).unwrap().is_half());
        assert!(ScaleMatrix::exact(vec![0.5], 2, 1, 4).is_none());
        let matrix = ScaleMatrix::exact(vec![0.5, f32::NAN], 1, 2, 8).unwrap();
        assert_eq!(matrix.not_finite(), Some(1));
        let large = [1.0f32, 1e6].map(f32::to_le_bytes).concat();
        let matrix = ScaleMatrix::new(&large, 1, 2, Dtype::F32).unwrap();
        assert_eq!(matrix.not_finite(), Some(1), "binary16 does not hold it");
    }
}
