//! A random linear of small floats.

use super::random::Random;
use super::{Owned, OwnedLinear};
use crate::dtype::{Dtype, OtherDtype};
use crate::registry::LinearKind;
use crate::safetensors::write::TensorData;
use crate::small_float::{
    CodeOrder, Codes, Number, ScaleValues, Sharing, SmallFloatLinear, TensorScale,
};

/// Which format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallFloatKind {
    /// E2M1 in groups of 32.
    Mxfp4,
    /// E2M1 in groups of 16, the scale of the matrix multiplies.
    Nvfp4,
    /// E4M3 in rectangles of 128 × 128.
    Fp8,
    /// E4M3 in rectangles of 128 × 128 with scales that are powers of two.
    Fp8E8m0,
    /// E5M2 with a scale per output.
    Fp8E5m2,
    /// A table of 16 values in runs of 64.
    Nf4,
}

/// Values like those of nf4.
const TABLE: [f32; 16] = [
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461,
    0.3379, 0.4407, 0.5626, 0.723, 1.0,
];
/// Side of a rectangle.
const SIDE: usize = 128;
/// Weights of a run.
const RUN: usize = 64;

/// A linear of small floats and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedSmallFloat {
    kind: SmallFloatKind,
    in_features: usize,
    out_features: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
    /// Size of a weight.
    size: f32,
    table: Vec<u8>,
    /// The scale of the matrix of NVFP4, the JSON of nf4.
    rest: Vec<u8>,
}

/// Makes a linear with weights around `±1 / √in_features`.
///
/// # Panics
/// When either extent is zero or groups do not divide the inputs.
pub fn small_float(
    kind: SmallFloatKind,
    in_features: usize,
    out_features: usize,
    seed: u64,
) -> OwnedLinear {
    assert!(in_features > 0 && out_features > 0, "an empty matrix");
    let mut random = Random::new(seed);
    let size = 1.0 / (in_features as f32).sqrt();
    let weights = in_features * out_features;
    // Exponents below 8 of 16, or 16 of 32: no NaN, and none much larger than the others.
    let codes = match kind {
        SmallFloatKind::Fp8 | SmallFloatKind::Fp8E8m0 | SmallFloatKind::Fp8E5m2 => {
            random.bytes(weights, |word| word & 0xBFBF_BFBF_BFBF_BFBF)
        }
        _ => random.bytes(weights.div_ceil(2), |word| word),
    };
    // Powers of two, the lowest bit of their exponents at random.
    let mut exponents = |count: usize, largest: f32| {
        let exponent = (size / largest).to_bits() >> 24 << 1;
        let pattern = u64::from(exponent) * 0x0101_0101_0101_0101;
        random.bytes(count, |word| word & 0x0101_0101_0101_0101 | pattern)
    };
    let floats = |count: usize, largest: f32| -> Vec<u8> {
        let scale = |i: usize| size / largest * (1.0 + (i % 7) as f32 / 5.0);
        (0..count).flat_map(|i| scale(i).to_le_bytes()).collect()
    };
    let rectangles = in_features.div_ceil(SIDE) * out_features.div_ceil(SIDE);
    let scales = match kind {
        SmallFloatKind::Mxfp4 => {
            assert!(in_features.is_multiple_of(32), "groups of 32");
            exponents(weights / 32, 3.0)
        }
        SmallFloatKind::Nvfp4 => {
            assert!(in_features.is_multiple_of(16), "groups of 16");
            random.bytes(weights / 16, |word| word & 0x0F0F_0F0F_0F0F_0F0F | 0x3030_3030_3030_3030)
        }
        SmallFloatKind::Fp8 => floats(rectangles, 1.0),
        SmallFloatKind::Fp8E8m0 => exponents(rectangles, 1.0),
        SmallFloatKind::Fp8E5m2 => floats(out_features, 1.0),
        SmallFloatKind::Nf4 => floats(weights.div_ceil(RUN), 0.5),
    };
    let table = TABLE.into_iter().flat_map(f32::to_le_bytes).collect();
    let rest = match kind {
        SmallFloatKind::Nvfp4 => tensor_scale(size).to_le_bytes().to_vec(),
        SmallFloatKind::Nf4 => format!(
            r#"{{"quant_type": "nf4", "blocksize": {RUN}, "shape": [{out_features}, {in_features}]}}"#
        )
        .into_bytes(),
        _ => Vec::new(),
    };
    OwnedLinear(Owned::SmallFloat(OwnedSmallFloat {
        kind,
        in_features,
        out_features,
        codes,
        scales,
        size,
        table,
        rest,
    }))
}

/// The scale of a matrix of NVFP4 with weights of this size.
fn tensor_scale(size: f32) -> f32 {
    size / 3.0
}

impl OwnedSmallFloat {
    pub(super) fn view(&self) -> SmallFloatLinear<'_> {
        let (inputs, scales) = (self.in_features, &self.scales[..]);
        let of_rows = |columns: usize| Sharing::Grid { rows: 1, columns, stride: inputs / columns };
        let rectangles = Sharing::Grid { rows: SIDE, columns: SIDE, stride: inputs.div_ceil(SIDE) };
        let (kind, number, order, values, sharing) = match self.kind {
            SmallFloatKind::Mxfp4 => {
                let values = ScaleValues::E8m0(scales);
                (LinearKind::Mxfp4, Number::E2m1, CodeOrder::LowFirst, values, of_rows(32))
            }
            SmallFloatKind::Nvfp4 => {
                let values =
                    ScaleValues::E4m3(scales, TensorScale::Multiply(tensor_scale(self.size)));
                (LinearKind::Nvfp4, Number::E2m1, CodeOrder::LowFirst, values, of_rows(16))
            }
            SmallFloatKind::Fp8 => {
                let values = ScaleValues::F32(scales);
                (LinearKind::Fp8, Number::E4m3, CodeOrder::Bytes, values, rectangles)
            }
            SmallFloatKind::Fp8E8m0 => {
                let values = ScaleValues::E8m0(scales);
                (LinearKind::Fp8, Number::E4m3, CodeOrder::Bytes, values, rectangles)
            }
            SmallFloatKind::Fp8E5m2 => {
                let rows = Sharing::Grid { rows: 1, columns: usize::MAX, stride: 1 };
                let values = ScaleValues::F32(scales);
                (LinearKind::Fp8, Number::E5m2, CodeOrder::Bytes, values, rows)
            }
            SmallFloatKind::Nf4 => {
                let values = ScaleValues::F32(scales);
                let number = Number::Table(TABLE);
                (LinearKind::Bnb4, number, CodeOrder::HighFirst, values, Sharing::Run(RUN))
            }
        };
        SmallFloatLinear {
            name: "synthetic".to_owned(),
            kind,
            in_features: inputs,
            out_features: self.out_features,
            number,
            codes: Codes { data: &self.codes, order, stride: inputs, transposed: false },
            scales: values,
            sharing,
            ranges: vec![std::ops::Range { start: 0, end: self.out_features }],
            bias: None,
            tensors: Vec::new(),
        }
    }

    pub(super) fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        let (n, k) = (self.out_features, self.in_features);
        let [u8, e4m3, e5m2, e8m0] =
            [OtherDtype::U8, OtherDtype::F8E4M3, OtherDtype::F8E5M2, OtherDtype::F8E8M0]
                .map(Dtype::Other);
        let rectangles = vec![n.div_ceil(SIDE), k.div_ceil(SIDE)];
        let (codes, scales) = (&self.codes[..], &self.scales[..]);
        let tensors = match self.kind {
            SmallFloatKind::Mxfp4 => vec![
                ("weight_packed", u8, vec![n, k / 2], codes),
                ("weight_scale", u8, vec![n, k / 32], scales),
            ],
            SmallFloatKind::Nvfp4 => vec![
                ("weight", u8, vec![n, k / 2], codes),
                ("weight_scale", e4m3, vec![n, k / 16], scales),
                ("weight_scale_2", Dtype::F32, vec![], &self.rest),
            ],
            SmallFloatKind::Fp8 => vec![
                ("weight", e4m3, vec![n, k], codes),
                ("weight_scale_inv", Dtype::F32, rectangles, scales),
            ],
            SmallFloatKind::Fp8E8m0 => {
                vec![("weight", e4m3, vec![n, k], codes), ("scale", e8m0, rectangles, scales)]
            }
            SmallFloatKind::Fp8E5m2 => vec![
                ("weight", e5m2, vec![n, k], codes),
                ("weight_scale", Dtype::F32, vec![n, 1], scales),
            ],
            SmallFloatKind::Nf4 => vec![
                ("weight", u8, vec![codes.len(), 1], codes),
                ("weight.absmax", Dtype::F32, vec![scales.len() / 4], scales),
                ("weight.quant_map", Dtype::F32, vec![16], &self.table),
                ("weight.quant_state.bitsandbytes__nf4", u8, vec![self.rest.len()], &self.rest),
            ],
        };
        let name = |suffix: &str| format!("{base}.{suffix}");
        tensors
            .into_iter()
            .map(|(suffix, dtype, shape, data)| TensorData {
                name: name(suffix),
                dtype,
                shape,
                data,
            })
            .collect()
    }
}
