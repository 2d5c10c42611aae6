//! A random GPTQ linear.

use half::f16;

use super::random::Random;
use super::{Owned, OwnedLinear};
use crate::dtype::Dtype;
use crate::gptq::{GptqLinear, ScaleMatrix};
use crate::linear::Columns;
use crate::safetensors::write::TensorData;
use crate::words::WordMatrix;

/// How rows are assigned to groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// Consecutive rows share a group.
    Sequential,
    /// Rows are assigned at random, in groups of equal size, as with activation order.
    Shuffled,
}

/// A GPTQ linear and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedGptq {
    in_features: usize,
    out_features: usize,
    groups: usize,
    order: RowOrder,
    group_of_row: Vec<u32>,
    qweight: Vec<u8>,
    qzeros: Vec<u8>,
    scales: Vec<u8>,
    g_idx: Vec<u8>,
}

/// Makes a GPTQ linear with groups of `group_rows`.
///
/// # Panics
/// When `in_features` is no positive multiple of `group_rows` and of 8, or `out_features` no
/// positive multiple of 8.
pub fn gptq(
    in_features: usize,
    out_features: usize,
    group_rows: usize,
    order: RowOrder,
    seed: u64,
) -> OwnedLinear {
    assert!(in_features > 0 && group_rows > 0 && out_features > 0, "an empty matrix");
    assert!(in_features.is_multiple_of(group_rows) && in_features.is_multiple_of(8));
    assert!(out_features.is_multiple_of(8), "{out_features} outputs");
    let mut random = Random::new(seed);
    let groups = in_features / group_rows;
    let qweight = random.bytes(in_features / 2 * out_features, |word| word);
    // Zero codes 4 to 7 (true zero points 5 to 8), near the middle as real ones are.
    let qzeros = random.bytes(groups * out_features / 2, |word| {
        word & 0x3333_3333_3333_3333 | 0x4444_4444_4444_4444
    });
    // Uniform 4-bit codes deviate by 16 / √12.
    let scale = f16::from_f32(12f32.sqrt() / 16.0 / (in_features as f32).sqrt()).to_bits();
    let pattern = u64::from(scale & 0xff00) * 0x0001_0001_0001_0001;
    let scales =
        random.bytes(groups * out_features * 2, |word| word & 0x00ff_00ff_00ff_00ff | pattern);
    let rows: Vec<u32> = match order {
        RowOrder::Sequential => (0..in_features as u32).collect(),
        RowOrder::Shuffled => random.permutation(in_features),
    };
    let group_of_row: Vec<u32> = rows.iter().map(|row| row / group_rows as u32).collect();
    let g_idx = group_of_row.iter().flat_map(|group| group.to_le_bytes()).collect();
    OwnedLinear(Owned::Gptq(OwnedGptq {
        in_features,
        out_features,
        groups,
        order,
        group_of_row,
        qweight,
        qzeros,
        scales,
        g_idx,
    }))
}

impl OwnedGptq {
    pub(super) fn view(&self) -> GptqLinear<'_> {
        let (groups, columns) = (self.groups, self.out_features);
        let matrix = |bytes, rows, columns| {
            WordMatrix::new(bytes, rows, columns).expect("sized by the constructor")
        };
        GptqLinear {
            name: "synthetic".to_owned(),
            in_features: self.in_features,
            out_features: columns,
            columns: Columns::first(columns, columns).expect("all columns"),
            groups,
            group_rows: (self.order == RowOrder::Sequential).then_some(self.in_features / groups),
            group_of_row: self.group_of_row.clone(),
            words: matrix(&self.qweight, self.in_features / 8, columns),
            zeros: matrix(&self.qzeros, groups, columns / 8),
            zero_offset: 1,
            scales: ScaleMatrix::new(&self.scales, groups, columns, Dtype::F16)
                .expect("sized by the constructor"),
            bias: None,
            tensors: Vec::new(),
        }
    }

    pub(super) fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        let (groups, columns) = (self.groups, self.out_features);
        [
            ("qweight", Dtype::I32, vec![self.in_features / 8, columns], &self.qweight),
            ("qzeros", Dtype::I32, vec![groups, columns / 8], &self.qzeros),
            ("scales", Dtype::F16, vec![groups, columns], &self.scales),
            ("g_idx", Dtype::I32, vec![self.in_features], &self.g_idx),
        ]
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
