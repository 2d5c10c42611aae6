//! Weights in tiles of 16 columns, streamed front to back.
//!
//! A tile holds all rows of its 16 columns: for packed weights `bits` lines of 64 bytes per 32
//! rows, in packed row order; for plain weights one line of 16 elements per row. Tiles have equal
//! length, so tile `t` starts at `t · tile_len`. Columns beyond the outputs are never stored back.

use std::sync::Arc;

use super::blocks::InputLayout;
use super::own::OwnKernel;
use super::quad::ScaleView;
use super::rotate::Rotation;
use super::small_float::SmallFloat;
use crate::account::Claim;
use crate::memory::Aligned;
use crate::simd::LANES;

/// A linear, laid out for this backend.
pub struct CpuLinear {
    pub(crate) in_features: usize,
    pub(crate) out_features: usize,
    /// Added to the outputs; padded with zeros to whole tiles.
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) input: Arc<InputLayout>,
    pub(crate) weights: Weights,
    /// Its bytes, where somebody keeps books.
    pub(crate) _claim: Claim,
}

/// Codes or plain numbers.
pub(crate) enum Weights {
    Packed(Packed),
    Plain(Plain),
    SmallFloat(SmallFloat),
    Own(Box<dyn OwnKernel>),
}

/// Quantised weights.
pub(crate) struct Packed {
    pub(crate) words: Aligned<u32>,
    /// Words per tile, a multiple of 16.
    pub(crate) tile_words: usize,
    pub(crate) groups: usize,
    pub(crate) scales: Scales,
}

/// Owned form of [`ScaleView`].
pub(crate) enum Scales {
    Square { codes: Aligned<u8>, steps: Vec<f32> },
    Affine { scales: Factors, zeros: Aligned<u8>, rounded: bool },
}

/// Scales of 16 columns for every tile and group.
pub(crate) enum Factors {
    /// Binary16 bits.
    Half(Aligned<u16>),
    Single(Aligned<f32>),
}

/// Unquantised weights, `[tile][row][16]`.
pub(crate) enum Plain {
    F16(Aligned<u16>),
    Bf16(Aligned<u16>),
    F32(Aligned<f32>),
}

impl CpuLinear {
    /// Tiles of 16 columns.
    pub(crate) fn tiles(&self) -> usize {
        self.out_features.div_ceil(LANES)
    }

    /// Bytes held: weights, scales, bias and tables.
    pub(crate) fn bytes(&self) -> usize {
        let weights = match &self.weights {
            Weights::Packed(packed) => packed.words.bytes() + packed.scales.bytes(),
            Weights::Plain(plain) => plain.bytes(),
            Weights::SmallFloat(codes) => codes.bytes(),
            Weights::Own(own) => own.bytes(),
        };
        let rotation = self.input.rotation.as_ref().map_or(0, Rotation::bytes);
        weights
            + rotation
            + self.bias.as_ref().map_or(0, |b| 4 * b.len())
            + 4 * self.input.perm.len()
    }

    /// Weight bytes of one tile: what streaming it costs.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.bytes() / self.tiles().max(1)
    }
}

impl Scales {
    pub(crate) fn view(&self) -> ScaleView<'_> {
        match self {
            Scales::Square { codes, steps } => ScaleView::Square { codes, steps },
            Scales::Affine { scales: Factors::Half(scales), zeros, rounded } => {
                ScaleView::Half { scales, zeros, rounded: *rounded }
            }
            Scales::Affine { scales: Factors::Single(scales), zeros, .. } => {
                ScaleView::Single { scales, zeros }
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Scales::Square { codes, steps } => codes.bytes() + 4 * steps.len(),
            Scales::Affine { scales: Factors::Half(scales), zeros, .. } => {
                scales.bytes() + zeros.bytes()
            }
            Scales::Affine { scales: Factors::Single(scales), zeros, .. } => {
                scales.bytes() + zeros.bytes()
            }
        }
    }
}

impl Plain {
    fn bytes(&self) -> usize {
        match self {
            Plain::F16(data) | Plain::Bf16(data) => data.bytes(),
            Plain::F32(data) => data.bytes(),
        }
    }
}
