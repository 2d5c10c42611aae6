//! EXL2: mixed widths from 2 to 8 bits, square-law 4-bit scales, rows ordered by importance.
//!
//! The matrix is `[in, out]`. Its rows are permuted and cut into groups of one width each; every
//! column of a group is a little-endian bit stream running down the rows. There is no zero-point
//! tensor: codes are offset binary. All rounding happens in binary16 and is reproduced exactly.

mod dequant;
pub mod groups;
pub(crate) mod layout;
pub mod pack;
pub mod scale;

pub use groups::Exl2Group;

use half::f16;

use crate::dtype::Dtype;
use crate::linear::{Columns, Reader, Stored, stored_fields};
use crate::registry::{LinearKind, WeightFormat};
use crate::tensor::TensorView;
use crate::words::WordMatrix;

/// EXL2 in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "EXL2",
    id: "exl2",
    methods: &["exl2"],
    tensors: &[".q_weight", ".q_scale", ".q_scale_max", ".q_groups", ".q_invperm", ".q_perm"],
    is_source: false,
    find: |checkpoint, base| checkpoint.tensor(&format!("{base}.q_weight")),
    reader: Reader::Exl2(layout::read),
    stacked: false,
};

/// An EXL2 linear, borrowed from its file. Every `col` below is a stored column.
#[derive(Clone, Debug)]
pub struct Exl2Linear<'a> {
    /// Base name of its tensors.
    pub name: String,
    /// Rows of the matrix.
    pub in_features: usize,
    /// Outputs, padding excluded.
    pub out_features: usize,
    /// Which stored columns are its outputs; the rest is padding or another part.
    pub columns: Columns,
    /// Runs of rows with one width; they cover all rows in packed order.
    pub groups: Vec<Exl2Group>,
    /// Packed codes, `[word rows, stored columns]`.
    pub words: WordMatrix<'a>,
    /// Packed scale codes, `[groups, stored columns / 8]`.
    pub scales: WordMatrix<'a>,
    /// Packed row `r` holds input feature `perm[r]`; a permutation of `0..in_features`.
    pub perm: Vec<u32>,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from.
    pub tensors: Vec<TensorView<'a>>,
}

impl Exl2Linear<'_> {
    /// The 4-bit scale code of a group and column.
    pub fn scale_code(&self, group: usize, col: usize) -> u8 {
        self.scales.nibble(group, col)
    }

    /// Bytes of its columns: codes, scale codes, ceilings, group table and permutation.
    pub fn weight_bytes(&self) -> u64 {
        let words: u64 = self.words.rows() as u64 * self.columns.len() as u64 * 4;
        let groups = self.groups.len() as u64;
        // Per group: half a byte per column, a binary16 ceiling, two 16-bit table entries.
        words + groups * self.columns.len() as u64 / 2 + groups * 6 + self.perm.len() as u64 * 4
    }

    /// The scale of a group and column at prescale 1.
    pub fn group_scale(&self, group: usize, col: usize) -> f16 {
        let ceiling = self.groups.get(group).map_or(f16::ZERO, |group| group.scale_max);
        scale::column_scale(self.scale_code(group, col), scale::group_step(ceiling, 1.0))
    }
}

impl<'a> Stored<'a> for Exl2Linear<'a> {
    stored_fields!();

    fn kind(&self) -> LinearKind {
        LinearKind::Exl2
    }

    fn stored_columns(&self) -> usize {
        self.columns.stored()
    }

    fn weight_bytes(&self) -> u64 {
        Exl2Linear::weight_bytes(self)
    }

    fn value_dtype(&self) -> Dtype {
        Dtype::F16
    }

    fn values(&self) -> Vec<f32> {
        self.dequantize().into_iter().map(f32::from).collect()
    }

    fn widths(&self) -> Vec<(u8, u64)> {
        let of_group = |group: &Exl2Group| (group.bits, (group.rows * self.out_features) as u64);
        self.groups.iter().map(of_group).collect()
    }

    fn details(&self) -> String {
        let rows = self.groups.iter().map(|group| group.rows).max().unwrap_or(0);
        format!("{} groups of up to {rows} rows", self.groups.len())
    }
}
