//! A random EXL3 linear.

use half::f16;

use super::random::Random;
use super::{Owned, OwnedLinear};
use crate::dtype::Dtype;
use crate::exl3::{Codebook, Exl3Linear, rotate::ROTATED, tile};
use crate::safetensors::write::TensorData;

/// An EXL3 linear and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedExl3 {
    in_features: usize,
    out_features: usize,
    bits: u8,
    codebook: Codebook,
    trellis: Vec<u8>,
    suh: Vec<u8>,
    svh: Vec<u8>,
    multiplier: Vec<u8>,
}

/// Makes an EXL3 linear with weights around `±1 / √in_features`, padded to multiples of 128.
///
/// # Panics
/// When either extent is zero or `bits` is not 1 to 8.
pub fn exl3(
    in_features: usize,
    out_features: usize,
    bits: u8,
    codebook: Codebook,
    seed: u64,
) -> OwnedLinear {
    assert!(in_features > 0 && out_features > 0, "an empty matrix");
    assert!((1..=8).contains(&bits), "{bits} bits");
    let mut random = Random::new(seed);
    let (inputs, outputs) = (padded(in_features), padded(out_features));
    let trellis = random.bytes(inputs / tile::TILE * outputs * 2 * usize::from(bits), |word| word);
    // Every weight is a sum of 128 × 128 random signs of the codebook's size, over 128.
    let mut scales = |len: usize, size: f32| {
        let pattern = u64::from(f16::from_f32(size).to_bits()) * 0x0001_0001_0001_0001;
        random.bytes(2 * len, |word| word & 0x8000_8000_8000_8000 | pattern)
    };
    let suh = scales(inputs, 1.0);
    let svh = scales(outputs, 1.0 / (in_features as f32).sqrt());
    let multiplier = codebook.factors().0.to_le_bytes().to_vec();
    OwnedLinear(Owned::Exl3(OwnedExl3 {
        in_features,
        out_features,
        bits,
        codebook,
        trellis,
        suh,
        svh,
        multiplier,
    }))
}

fn padded(features: usize) -> usize {
    features.next_multiple_of(ROTATED)
}

fn widen(bytes: &[u8]) -> Vec<f32> {
    let halves = bytes.as_chunks::<2>().0.iter();
    halves.map(|half| f16::from_le_bytes(*half).to_f32()).collect()
}

impl OwnedExl3 {
    pub(super) fn view(&self) -> Exl3Linear<'_> {
        Exl3Linear {
            name: "synthetic".to_owned(),
            in_features: self.in_features,
            out_features: self.out_features,
            padded_in: padded(self.in_features),
            padded_out: padded(self.out_features),
            bits: self.bits,
            codebook: self.codebook,
            trellis: &self.trellis,
            suh: widen(&self.suh),
            svh: widen(&self.svh),
            bias: None,
            tensors: Vec::new(),
        }
    }

    pub(super) fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        let (inputs, outputs) = (padded(self.in_features), padded(self.out_features));
        let tiles = vec![inputs / tile::TILE, outputs / tile::TILE, 16 * usize::from(self.bits)];
        let mut tensors = vec![
            ("trellis", Dtype::I16, tiles, &self.trellis),
            ("suh", Dtype::F16, vec![inputs], &self.suh),
            ("svh", Dtype::F16, vec![outputs], &self.svh),
        ];
        match self.codebook {
            Codebook::ThreeInst => {}
            Codebook::Mcg(_) => tensors.push(("mcg", Dtype::I32, vec![], &self.multiplier)),
            Codebook::Mul1(_) => tensors.push(("mul1", Dtype::I32, vec![], &self.multiplier)),
        }
        tensors
            .into_iter()
            .map(|(suffix, dtype, shape, data)| TensorData {
                name: format!("{base}.{suffix}"),
                dtype,
                shape,
                data,
            })
            .collect()
    }
}
