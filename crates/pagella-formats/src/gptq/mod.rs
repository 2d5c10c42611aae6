//! GPTQ: codes of 2, 3, 4 or 8 bits, packed along the inputs, with a scale and a zero point for every
//! group of inputs and output; with or without activation order.
//!
//! Other formats of integer codes differ from it in packing and in where zero points and scales come
//! from. They are brought to this form when they are read, and kernels know no other.

mod dequant;
pub(crate) mod layout;
pub(crate) mod parts;
pub(crate) mod repack;
mod scales;
pub(crate) mod zeros;

use half::f16;

pub use scales::ScaleMatrix;
pub use zeros::GptqZeros;

use crate::dtype::Dtype;
use crate::linear::{Columns, Reader, Stored, spread, stored_fields};
use crate::registry::{LinearKind, WeightFormat};
use crate::tensor::TensorView;
use crate::words::Words;

/// GPTQ in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "GPTQ",
    id: "gptq",
    methods: &["gptq"],
    tensors: &[".qweight", ".qzeros", ".scales", ".g_idx"],
    is_source: false,
    find: |checkpoint, base| checkpoint.tensor(&format!("{base}.qweight")),
    reader: Reader::Gptq(layout::read),
    stacked: false,
};

/// A linear of integer codes as GPTQ packs them. Every `col` below is a stored column.
#[derive(Clone, Debug)]
pub struct GptqLinear<'a> {
    /// How its files hold it.
    pub kind: LinearKind,
    /// Base name of its tensors.
    pub name: String,
    /// Bits of a code: 2, 3, 4 or 8.
    pub bits: u8,
    /// Rows of the matrix.
    pub in_features: usize,
    /// Outputs, padding excluded.
    pub out_features: usize,
    /// Which stored columns are its outputs.
    pub columns: Columns,
    /// Number of groups.
    pub groups: usize,
    /// Rows per group when row `k` is in group `k / group_rows`; `None` with activation order.
    pub group_rows: Option<usize>,
    /// Group of every input row, `[in_features]`, each below `groups`.
    pub group_of_row: Vec<u32>,
    /// Packed codes, `[in_features · bits / 32, stored columns]`: a bit stream down every column, the
    /// lowest bits first.
    pub words: Words<'a>,
    /// Packed zero codes, `[groups, stored columns · bits / 32]`: a bit stream along every row.
    pub zeros: Words<'a>,
    /// What to add to a stored zero code: 1 in the original format, 0 in `gptq_v2`.
    pub zero_offset: u8,
    /// Whether zero points are stored; else all are the middle of the codes.
    pub stored_zeros: bool,
    /// Scales, `[groups, stored columns]`.
    pub scales: ScaleMatrix<'a>,
    /// Whether weights are binary16 numbers, and not the products that are rounded to them.
    pub rounded: bool,
    /// Added to each output, `[out_features]`.
    pub bias: Option<Vec<f32>>,
    /// The tensors it was read from.
    pub tensors: Vec<TensorView<'a>>,
}

impl GptqLinear<'_> {
    /// The code of an input row and column.
    pub fn code(&self, row: usize, col: usize) -> u8 {
        self.words.matrix().code_down(row, col, self.bits)
    }

    /// The zero point of a group and column; a stored 15 plus one does not wrap.
    pub fn zero(&self, group: usize, col: usize) -> u8 {
        self.zeros.matrix().code_along(group, col, self.bits) + self.zero_offset
    }

    /// The scale of a group and column, rounded to binary16.
    pub fn scale(&self, group: usize, col: usize) -> f16 {
        self.scales.at(group, col)
    }

    /// The weight of an input row and column as the format defines it, `(code − zero) · scale`. f32
    /// holds the product of a binary16 scale exactly. Half-precision programs round it, see
    /// [`GptqLinear::dequantize`].
    pub fn product(&self, row: usize, col: usize) -> f32 {
        let group = self.group_of_row.get(row).map_or(0, |group| *group as usize);
        let centred = f32::from(self.code(row, col)) - f32::from(self.zero(group, col));
        let product = centred * self.scales.value(group, col);
        if self.rounded { f16::from_f32(product).to_f32() } else { product }
    }

    /// Bytes of its columns: codes, zero codes, scales and, with activation order, the row groups.
    pub fn weight_bytes(&self) -> u64 {
        let (rows, columns) = (self.in_features as u64, self.columns.len() as u64);
        let bits = u64::from(self.bits);
        let scale_bytes = self.scales.stored_bytes() as u64;
        let zero_codes = if self.stored_zeros { self.groups as u64 * columns } else { 0 };
        let order_bytes = if self.group_rows.is_none() { rows * 4 } else { 0 };
        let share = scale_bytes * columns / (self.columns.stored() as u64).max(1);
        (rows * columns + zero_codes) * bits / 8 + share + order_bytes
    }
}

impl<'a> Stored<'a> for GptqLinear<'a> {
    stored_fields!();

    fn kind(&self) -> LinearKind {
        self.kind
    }

    fn stored_columns(&self) -> usize {
        self.columns.stored()
    }

    fn weight_bytes(&self) -> u64 {
        GptqLinear::weight_bytes(self)
    }

    fn value_dtype(&self) -> Dtype {
        if self.rounded { Dtype::F16 } else { Dtype::F32 }
    }

    fn values(&self) -> Vec<f32> {
        let row = |k| self.columns.iter().map(move |n| self.product(k, n));
        (0..self.in_features).flat_map(row).collect()
    }

    fn sample(&self) -> Vec<f32> {
        let stored: Vec<usize> = self.columns.iter().collect();
        let columns = spread(stored.len()).filter_map(|at| stored.get(at).copied());
        spread(self.in_features)
            .flat_map(|k| columns.clone().map(move |n| self.product(k, n)))
            .collect()
    }

    fn widths(&self) -> Vec<(u8, u64)> {
        vec![(self.bits, self.in_features as u64 * self.out_features as u64)]
    }

    fn made_bytes(&self) -> u64 {
        self.words.made_bytes() + self.zeros.made_bytes() + self.scales.made_bytes()
    }

    fn details(&self) -> String {
        match self.group_rows {
            Some(rows) if rows == self.in_features => "one group".to_owned(),
            Some(rows) => format!("groups of {rows} rows"),
            None => format!("{} groups in activation order", self.groups),
        }
    }
}
