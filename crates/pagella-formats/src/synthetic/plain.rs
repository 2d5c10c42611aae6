//! A random unquantised linear.

use half::f16;

use super::random::Random;
use super::{Owned, OwnedLinear};
use crate::dtype::Dtype;
use crate::plain::PlainLinear;
use crate::safetensors::write::TensorData;

/// An F16 linear and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedPlain {
    in_features: usize,
    out_features: usize,
    data: Vec<u8>,
}

/// Makes an F16 linear, stored `[out, in]`, with weights around `±1 / √in_features`.
///
/// # Panics
/// When either extent is zero.
pub fn plain_f16(in_features: usize, out_features: usize, seed: u64) -> OwnedLinear {
    assert!(in_features > 0 && out_features > 0, "an empty matrix");
    // Random sign and mantissa under a fixed exponent: cheap, and no value is zero or huge.
    let exponent = f16::from_f32(1.0 / (in_features as f32).sqrt()).to_bits() & 0x7c00;
    let pattern = u64::from(exponent) * 0x0001_0001_0001_0001;
    let data = Random::new(seed)
        .bytes(in_features * out_features * 2, |word| word & 0x83ff_83ff_83ff_83ff | pattern);
    OwnedLinear(Owned::Plain(OwnedPlain { in_features, out_features, data }))
}

impl OwnedPlain {
    pub(super) fn view(&self) -> PlainLinear<'_> {
        PlainLinear {
            name: "synthetic".to_owned(),
            in_features: self.in_features,
            out_features: self.out_features,
            dtype: Dtype::F16,
            transposed: false,
            data: &self.data,
            stride: self.in_features,
            ranges: vec![std::ops::Range { start: 0, end: self.out_features }],
            bias: None,
            tensors: Vec::new(),
        }
    }

    pub(super) fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        vec![TensorData {
            name: format!("{base}.weight"),
            dtype: Dtype::F16,
            shape: vec![self.out_features, self.in_features],
            data: &self.data,
        }]
    }
}
