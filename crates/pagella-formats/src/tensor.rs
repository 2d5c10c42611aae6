//! One stored tensor, borrowed from its file, with conversions to numbers.
//!
//! Invariant: `data` is as long as `shape` and `dtype` say (the header check proved it), except
//! for an unknown `dtype`, which nothing here reads. `data` may be unaligned.

use std::path::Path;

use half::{bf16, f16};

use crate::dtype::{Dtype, OtherDtype};
use crate::error::{FormatError, Result};

/// One tensor of a checkpoint, borrowed from the mapped file.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Name after renaming.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Row-major shape; empty for a scalar.
    pub shape: &'a [usize],
    /// Little-endian elements, possibly unaligned.
    pub data: &'a [u8],
    /// The file it is in.
    pub file: &'a Path,
}

impl TensorView<'_> {
    /// Number of elements.
    ///
    /// Saturates for an unknown type, whose shape nothing could compare with its bytes.
    pub fn element_count(&self) -> usize {
        self.shape.iter().fold(1, |count: usize, extent| count.saturating_mul(*extent))
    }

    /// The elements of an F32, F16 or BF16 tensor, exactly.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        match self.dtype {
            Dtype::F32 => Ok(elements(self.data, f32::from_le_bytes)),
            Dtype::F16 => Ok(elements(self.data, |b| f16::from_le_bytes(b).to_f32())),
            Dtype::BF16 => Ok(elements(self.data, |b| bf16::from_le_bytes(b).to_f32())),
            _ => Err(self.wrong_dtype("F16, BF16 or F32")),
        }
    }

    /// [`TensorView::to_f32`] of a tensor that may hold anything; what is not finite is an error.
    pub fn to_finite_f32(&self) -> Result<Vec<f32>> {
        let values = self.to_f32()?;
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(index) => Err(FormatError::NotFinite {
                path: self.file.to_owned(),
                tensor: self.name.to_owned(),
                index,
            }),
        }
    }

    /// The elements of an F32, F16 or BF16 tensor, rounded to nearest even binary16.
    pub fn to_f16(&self) -> Result<Vec<f16>> {
        match self.dtype {
            Dtype::F16 => Ok(elements(self.data, f16::from_le_bytes)),
            Dtype::F32 => Ok(elements(self.data, |b| f16::from_f32(f32::from_le_bytes(b)))),
            Dtype::BF16 => {
                Ok(elements(self.data, |b| f16::from_f32(bf16::from_le_bytes(b).to_f32())))
            }
            _ => Err(self.wrong_dtype("F16, BF16 or F32")),
        }
    }

    /// The elements of an I32 tensor.
    pub fn to_i32_vec(&self) -> Result<Vec<i32>> {
        match self.dtype {
            Dtype::I32 => Ok(elements(self.data, i32::from_le_bytes)),
            _ => Err(self.wrong_dtype("I32")),
        }
    }

    /// The elements of any integer tensor whose values fit 64 signed bits, such as token ids.
    pub fn to_i64_vec(&self) -> Result<Vec<i64>> {
        match self.dtype {
            Dtype::I32 => Ok(elements(self.data, |b| i32::from_le_bytes(b).into())),
            Dtype::I16 => Ok(elements(self.data, |b| i16::from_le_bytes(b).into())),
            Dtype::Other(OtherDtype::I64) => Ok(elements(self.data, i64::from_le_bytes)),
            // Beyond 2^63 no id and no index is meant; −1 is refused by whoever reads one.
            Dtype::Other(OtherDtype::U64) => {
                Ok(elements(self.data, |b| i64::try_from(u64::from_le_bytes(b)).unwrap_or(-1)))
            }
            Dtype::Other(OtherDtype::U32) => {
                Ok(elements(self.data, |b| u32::from_le_bytes(b).into()))
            }
            Dtype::Other(OtherDtype::U16) => {
                Ok(elements(self.data, |b| u16::from_le_bytes(b).into()))
            }
            Dtype::Other(OtherDtype::U8) => Ok(elements(self.data, |[b]| b.into())),
            Dtype::Other(OtherDtype::I8) => {
                Ok(elements(self.data, |b| i8::from_le_bytes(b).into()))
            }
            _ => Err(self.wrong_dtype("an integer type")),
        }
    }

    /// Fails unless the type is `wanted`.
    pub(crate) fn expect_dtype(&self, wanted: Dtype) -> Result<()> {
        if self.dtype == wanted { Ok(()) } else { Err(self.wrong_dtype(wanted.tag())) }
    }

    /// The two extents of a matrix.
    pub(crate) fn matrix_shape(&self) -> Result<(usize, usize)> {
        match self.shape {
            [rows, columns] => Ok((*rows, *columns)),
            _ => Err(self.wrong_shape("a matrix")),
        }
    }

    /// The extent of a vector.
    pub(crate) fn vector_len(&self) -> Result<usize> {
        match self.shape {
            [len] => Ok(*len),
            _ => Err(self.wrong_shape("a vector")),
        }
    }

    pub(crate) fn wrong_dtype(&self, expected: &'static str) -> FormatError {
        FormatError::WrongDtype {
            path: self.file.to_owned(),
            tensor: self.name.to_owned(),
            expected,
            found: self.dtype,
        }
    }

    pub(crate) fn bad_weights(&self, problem: impl Into<String>) -> FormatError {
        FormatError::BadWeights {
            path: self.file.to_owned(),
            tensor: self.name.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn wrong_shape(&self, expected: impl Into<String>) -> FormatError {
        FormatError::WrongShape {
            path: self.file.to_owned(),
            tensor: self.name.to_owned(),
            expected: expected.into(),
            found: self.shape.to_vec(),
        }
    }
}

/// All whole `SIZE`-byte elements of `data`.
pub(crate) fn elements<const SIZE: usize, T>(
    data: &[u8],
    read: impl Fn([u8; SIZE]) -> T,
) -> Vec<T> {
    data.as_chunks::<SIZE>().0.iter().map(|bytes| read(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(dtype: Dtype, shape: &'a [usize], data: &'a [u8]) -> TensorView<'a> {
        TensorView { name: "t", dtype, shape, data, file: Path::new("f") }
    }

    #[test]
    fn floats_of_all_widths_read_at_any_alignment() {
        let bytes = [9, 0x00, 0x3c, 0x01, 0x00];
        assert_eq!(
            view(Dtype::F16, &[2], &bytes[1..]).to_f32().unwrap(),
            [1.0, 5.960_464_5e-8],
            "subnormals are kept"
        );
        let bytes = [9, 0x80, 0x3f, 0x80, 0xff];
        let bf16 = view(Dtype::BF16, &[2], &bytes[1..]);
        assert_eq!(bf16.to_f32().unwrap(), [1.0, f32::NEG_INFINITY]);
        assert_eq!(bf16.to_f16().unwrap(), [f16::ONE, f16::NEG_INFINITY]);
        let bytes = 70_000f32.to_le_bytes();
        assert_eq!(view(Dtype::F32, &[1], &bytes).to_f16().unwrap(), [f16::INFINITY]);
    }

    #[test]
    fn integers_widen_and_floats_are_refused() {
        assert_eq!(view(Dtype::I16, &[1], &[0xfe, 0xff]).to_i64_vec().unwrap(), [-2]);
        let ids = view(Dtype::Other(OtherDtype::I64), &[1], &[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ids.to_i64_vec().unwrap(), [7]);
        let bytes = [u64::MAX.to_le_bytes(), 7u64.to_le_bytes()].concat();
        let ids = view(Dtype::Other(OtherDtype::U64), &[2], &bytes);
        assert_eq!(ids.to_i64_vec().unwrap(), [-1, 7]);
        let error = view(Dtype::F16, &[1], &[0, 0]).to_i64_vec().unwrap_err();
        assert_eq!(error.code(), "wrong_dtype");
        let message = error.to_string();
        assert!(message.contains("`t`") && message.contains("F16"), "{message}");
    }
}
