//! EXL3: 1 to 8 bits per weight as walks through a trellis, between two rotations.
//!
//! `W = diag(suh) · H · Ŵ · H · diag(svh)`, where `Ŵ` is decoded from tiles of 16 × 16 weights and
//! `H` rotates 128 features at a time. There are no groups and no zero points. Both extents are padded
//! to multiples of 128; columns beyond the outputs hold noise and are dropped.

mod codebook;
mod dequant;
pub(crate) mod layout;
pub mod rotate;
pub mod tile;

pub use codebook::{Codebook, MCG_MULTIPLIER, MUL1_MULTIPLIER};

use crate::dtype::Dtype;
use crate::linear::{Reader, Stored, stored_fields};
use crate::registry::{LinearKind, WeightFormat};
use crate::tensor::TensorView;

/// EXL3 in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "EXL3",
    id: "exl3",
    methods: &["exl3"],
    tensors: &[".trellis", ".suh", ".svh", ".su", ".sv", ".mcg", ".mul1"],
    is_source: false,
    find: |checkpoint, base| checkpoint.tensor(&format!("{base}.trellis")),
    reader: Reader::Exl3(layout::read),
    stacked: false,
};

/// An EXL3 linear, borrowed from its file.
///
/// Invariant: `trellis` holds `padded_in · padded_out / 256` tiles of `bits`, row-major; `suh` and
/// `svh` hold `padded_in` and `padded_out` finite values.
#[derive(Clone, Debug)]
pub struct Exl3Linear<'a> {
    /// Base name of its tensors.
    pub name: String,
    /// Length of the vectors it takes, padding excluded.
    pub in_features: usize,
    /// Outputs, padding excluded.
    pub out_features: usize,
    /// Rows of the stored matrix, a multiple of 128.
    pub padded_in: usize,
    /// Columns of the stored matrix, a multiple of 128.
    pub padded_out: usize,
    /// Bits of a weight, 1 to 8.
    pub bits: u8,
    /// From states to values.
    pub codebook: Codebook,
    /// Tiles, `[padded_in / 16, padded_out / 16]`.
    pub trellis: &'a [u8],
    /// What inputs are multiplied with before they are rotated.
    pub suh: Vec<f32>,
    /// What outputs are multiplied with after they are rotated.
    pub svh: Vec<f32>,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from.
    pub tensors: Vec<TensorView<'a>>,
}

impl<'a> Exl3Linear<'a> {
    /// The stream of one tile.
    pub fn tile(&self, row: usize, column: usize) -> &'a [u8] {
        let bytes = tile::tile_bytes(self.bits);
        let first = (row * (self.padded_out / tile::TILE) + column) * bytes;
        self.trellis.get(first..first + bytes).unwrap_or_default()
    }
}

impl<'a> Stored<'a> for Exl3Linear<'a> {
    stored_fields!();

    fn kind(&self) -> LinearKind {
        LinearKind::Exl3
    }

    fn stored_columns(&self) -> usize {
        self.padded_out
    }

    fn weight_bytes(&self) -> u64 {
        (self.trellis.len() + 2 * (self.suh.len() + self.svh.len())) as u64
    }

    fn value_dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn values(&self) -> Vec<f32> {
        self.dequantize()
    }

    fn sample(&self) -> Vec<f32> {
        self.first_weights()
    }

    fn widths(&self) -> Vec<(u8, u64)> {
        vec![(self.bits, self.in_features as u64 * self.out_features as u64)]
    }

    fn caution(&self) -> Option<&'static str> {
        let words = "a codebook with a multiplier that is not the one the format settled on: such files are \
                     experiments of 2025, or damaged";
        self.codebook.is_experimental().then_some(words)
    }

    fn details(&self) -> String {
        let experimental =
            if self.codebook.is_experimental() { " with an experimental multiplier" } else { "" };
        format!("codebook {}{experimental}", self.codebook.name())
    }
}
