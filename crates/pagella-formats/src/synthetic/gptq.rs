//! A random GPTQ linear.

use half::f16;

use super::random::Random;
use super::{Owned, OwnedLinear};
use crate::dtype::Dtype;
use crate::gptq::{GptqLinear, ScaleMatrix};
use crate::linear::Columns;
use crate::registry::LinearKind;
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

/// What codes and scales are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerForm {
    /// 2, 3, 4 or 8.
    pub bits: u8,
    /// Whether weights are binary16 numbers.
    pub rounded: bool,
    /// Whether scales are f32 that binary16 does not hold.
    pub single: bool,
}

/// A GPTQ linear and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedGptq {
    in_features: usize,
    out_features: usize,
    groups: usize,
    form: IntegerForm,
    order: RowOrder,
    group_of_row: Vec<u32>,
    qweight: Vec<u8>,
    qzeros: Vec<u8>,
    /// Binary16.
    scales: Vec<u8>,
    g_idx: Vec<u8>,
}

/// Makes a GPTQ linear of 4 bits with groups of `group_rows`.
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
    let form = IntegerForm { bits: 4, rounded: false, single: false };
    integer(in_features, out_features, group_rows, order, form, seed)
}

/// Makes a linear of integer codes in the form of GPTQ. Of other widths than 4 bits, zero points are
/// stored as they are.
///
/// # Panics
/// As [`gptq`], and when codes of that width do not fill words.
pub fn integer(
    in_features: usize,
    out_features: usize,
    group_rows: usize,
    order: RowOrder,
    form: IntegerForm,
    seed: u64,
) -> OwnedLinear {
    let bits = usize::from(form.bits);
    assert!(in_features > 0 && group_rows > 0 && out_features > 0, "an empty matrix");
    assert!(in_features.is_multiple_of(group_rows) && (in_features * bits).is_multiple_of(32));
    assert!((out_features * bits).is_multiple_of(32), "{out_features} outputs");
    let mut random = Random::new(seed);
    let groups = in_features / group_rows;
    let qweight = random.bytes(in_features * bits / 8 * out_features, |word| word);
    // Of 4 bits, zero codes 4 to 7 (true zero points 5 to 8), near the middle as real ones are.
    let near = |word| word & 0x3333_3333_3333_3333 | 0x4444_4444_4444_4444;
    let qzeros = random
        .bytes(groups * out_features * bits / 8, |word| if bits == 4 { near(word) } else { word });
    // Uniform codes deviate by a √12th of their range.
    let range = (1u32 << form.bits) as f32;
    let scale = f16::from_f32(12f32.sqrt() / range / (in_features as f32).sqrt()).to_bits();
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
        form,
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
        let bits = usize::from(self.form.bits);
        let matrix = |bytes, rows, columns| {
            WordMatrix::new(bytes, rows, columns).expect("sized by the constructor").into()
        };
        GptqLinear {
            kind: LinearKind::Gptq,
            name: "synthetic".to_owned(),
            bits: self.form.bits,
            in_features: self.in_features,
            out_features: columns,
            columns: Columns::first(columns, columns).expect("all columns"),
            groups,
            group_rows: (self.order == RowOrder::Sequential).then_some(self.in_features / groups),
            group_of_row: self.group_of_row.clone(),
            words: matrix(&self.qweight, self.in_features * bits / 32, columns),
            zeros: matrix(&self.qzeros, groups, columns * bits / 32),
            zero_offset: u8::from(bits == 4),
            stored_zeros: true,
            scales: self.scale_matrix(),
            rounded: self.form.rounded,
            bias: None,
            tensors: Vec::new(),
        }
    }

    fn scale_matrix(&self) -> ScaleMatrix<'_> {
        let (groups, columns) = (self.groups, self.out_features);
        let halves = ScaleMatrix::new(&self.scales, groups, columns, Dtype::F16);
        let halves = halves.expect("sized by the constructor");
        if !self.form.single {
            return halves;
        }
        // Eleven bits of binary16 become sixteen, so that products with zero points stay exact.
        let at = |index: usize| (index / columns, index % columns);
        let fine = |index| halves.value(at(index).0, at(index).1) * (1.0 + 1.0 / 8192.0);
        let values: Vec<f32> = (0..groups * columns).map(fine).collect();
        let values = values.iter().map(|value| f32::from_bits(value.to_bits() & !0xff)).collect();
        ScaleMatrix::exact(values, groups, columns, self.scales.len()).expect("as many")
    }

    pub(super) fn named(&self, base: &str) -> Vec<TensorData<'_>> {
        let (groups, columns) = (self.groups, self.out_features);
        let bits = usize::from(self.form.bits);
        [
            ("qweight", Dtype::I32, vec![self.in_features * bits / 32, columns], &self.qweight),
            ("qzeros", Dtype::I32, vec![groups, columns * bits / 32], &self.qzeros),
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
