//! The linears that projections and logits are tried with: every kind of weights.

use std::ops::Range;

use pagella_formats::synthetic::{RowOrder, exl2, gptq, plain_f16};
use pagella_formats::{Columns, Dtype, Linear, LinearKind, OwnedLinear, PlainLinear};

use super::{Tolerances, noise};

/// Widths of EXL2 with groups of 32, 64 and 128 rows, the last one shorter.
pub(super) fn exl2_mixed(seed: u64) -> OwnedLinear {
    exl2(544, 96, &[(8, 0.1, 32), (6, 0.2, 128), (5, 0.2, 64), (4, 0.3, 128), (2, 0.2, 64)], seed)
}

/// EXL2 of one width; outputs are padded in the file.
pub(super) fn exl2_of(bits: u8) -> OwnedLinear {
    exl2(320, 75, &[(bits, 1.0, 128)], u64::from(bits))
}

/// GPTQ with groups of `group_rows`.
pub(super) fn gptq_of(group_rows: usize, order: RowOrder) -> OwnedLinear {
    gptq(512, 72, group_rows, order, group_rows as u64)
}

/// One of each: EXL2, GPTQ with and without activation order, plain. All take 512 inputs.
pub(super) fn one_of_each() -> Vec<OwnedLinear> {
    vec![
        exl2(512, 96, &[(6, 0.25, 64), (4, 0.5, 128), (3, 0.25, 128)], 1),
        gptq_of(128, RowOrder::Sequential),
        gptq_of(64, RowOrder::Shuffled),
        plain_f16(512, 40, 4),
    ]
}

/// The linear with a bias.
pub(super) fn with_bias(linear: Linear<'_>) -> Linear<'_> {
    let values = noise::gaussian(99, linear.out_features());
    linear.with_bias(Some(values))
}

/// Two parts of a fused tensor, in the order that the linear wants and the file does not have.
pub(super) fn fused_parts(linear: Linear<'_>) -> Linear<'_> {
    columns_of(linear, vec![64..72, 8..40])
}

/// Some columns of a linear, in this order.
pub(super) fn columns_of(mut linear: Linear<'_>, ranges: Vec<Range<usize>>) -> Linear<'_> {
    let outputs = ranges.iter().map(ExactSizeIterator::len).sum();
    let columns = Columns::new(linear.columns(), ranges.clone());
    match (&mut linear, columns) {
        (Linear::Exl2(linear), Some(columns)) => {
            (linear.columns, linear.out_features) = (columns, outputs);
        }
        (Linear::Gptq(linear), Some(columns)) => {
            (linear.columns, linear.out_features) = (columns, outputs);
        }
        (Linear::Plain(linear), _) => (linear.ranges, linear.out_features) = (ranges, outputs),
        _ => {}
    }
    linear
}

/// A plain linear of any type and orientation over `data`, which [`plain_bytes`] made.
pub(super) fn plain(data: &[u8], dtype: Dtype, transposed: bool) -> Linear<'_> {
    let (in_features, out_features) = PLAIN_SHAPE;
    let whole = std::ops::Range { start: 0, end: out_features };
    Linear::Plain(PlainLinear {
        name: "conformance".to_owned(),
        in_features,
        out_features,
        dtype,
        transposed,
        data,
        stride: if transposed { out_features } else { in_features },
        ranges: vec![whole],
        bias: None,
        tensors: Vec::new(),
    })
}

/// Inputs and outputs of [`plain`].
const PLAIN_SHAPE: (usize, usize) = (96, 51);

/// Weights for [`plain`]. F32 weights have more digits than half-precision ones.
pub(super) fn plain_bytes(dtype: Dtype) -> Vec<u8> {
    let (inputs, outputs) = PLAIN_SHAPE;
    let values = noise::gaussian(17, inputs * outputs).into_iter().map(|x| x / 10.0);
    match dtype {
        Dtype::F32 => values.flat_map(f32::to_le_bytes).collect(),
        Dtype::BF16 => values.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        _ => values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
    }
}

/// The tolerance for a kind of weights.
pub(super) fn tolerance(linear: &Linear<'_>, tolerances: &Tolerances) -> f64 {
    match linear.kind() {
        LinearKind::Plain => tolerances.plain_linear,
        _ => tolerances.quantised_linear,
    }
}
