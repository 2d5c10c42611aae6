//! compressed-tensors, `pack-quantized`: integer codes of 2, 4 or 8 bits, packed along the inputs.
//!
//! Weights lie `[out, in]`, so that a word holds codes of one output; zero points are packed down the
//! outputs. Both are those of GPTQ after a transposition. Numbers are stored from −2^(bits−1) on, which
//! is the middle of GPTQ's codes. Scales keep the type of their file.

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::{FormatError, Result};
use crate::gptq::GptqLinear;
use crate::gptq::parts::{Groups, Parts, column_scales, equal_zeros, middle_zeros};
use crate::gptq::repack::transpose;
use crate::linear::{Columns, Cut, Found, LinearRequest, Reader};
use crate::registry::WeightFormat;
use crate::tensor::TensorView;
use crate::unsupported::UnsupportedFormat;
use crate::words::{WordMatrix, Words, words_for};

/// `pack-quantized` in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "compressed-tensors pack-quantized",
    id: "pack-quantized",
    methods: &["compressed-tensors"],
    tensors: &[
        ".weight_packed",
        ".weight_scale",
        ".weight_zero_point",
        ".weight_shape",
        ".weight_g_idx",
    ],
    is_source: false,
    find: |checkpoint, base| {
        let tensor = checkpoint.tensor(&format!("{base}.weight_packed"))?;
        (tensor.dtype != Dtype::Other(OtherDtype::U8)).then_some(tensor)
    },
    reader: Reader::Gptq(read),
    stacked: false,
};

/// Widths of codes that are packed alike by every version of the library.
const WIDTHS: [u8; 3] = [2, 4, 8];

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    let weight = found.weight;
    let packed = WordMatrix::from_tensor(&weight)?;
    let cut = Cut::new(request, found, request.out_features)?;
    let (rows, declared) = (request.in_features, cut.declared);
    let shape = checkpoint.require(&format!("{base}.weight_shape"))?;
    check_shape(&shape, rows, declared)?;
    let bits = width(&weight, packed.columns(), rows)?;
    let wrong_shape = || weight.wrong_shape(format!("[{declared}, {rows} · {bits} / 32]"));
    if packed.rows() != declared {
        return Err(wrong_shape());
    }
    let columns = Columns::new(declared, cut.ranges.clone()).ok_or_else(wrong_shape)?;

    let scale = checkpoint.require(&format!("{base}.weight_scale"))?;
    let (scales, count) = column_scales(&scale, declared, |scale| scale)?;
    let g_idx = checkpoint.tensor(&format!("{base}.weight_g_idx"));
    let used_g_idx = g_idx.filter(|tensor| !is_unset(tensor));
    let groups = Groups::assigned(used_g_idx.as_ref(), &scale, rows, count)?;
    let zero_point = checkpoint.tensor(&format!("{base}.weight_zero_point"));
    let (zeros, stored_zeros) = match &zero_point {
        None => (middle_zeros(bits, count, declared), false),
        Some(tensor) => (zeros(tensor, &scale, bits, (count, declared))?, true),
    };

    let mut tensors = vec![weight, shape, scale];
    tensors.extend(zero_point);
    tensors.extend(g_idx);
    let words = Words::repacked(packed.columns(), declared, move |out| transpose(packed, 0, out));
    let parts = Parts {
        bits,
        columns,
        groups,
        words: words.ok_or_else(wrong_shape)?,
        zeros: zeros.ok_or_else(wrong_shape)?,
        zero_offset: 0,
        stored_zeros,
        scales,
        rounded: false,
        tensors,
    };
    parts.with_bias(checkpoint, request, found, declared)
}

/// Fails unless `weight_shape` says `[declared, rows]`.
fn check_shape(shape: &TensorView<'_>, rows: usize, declared: usize) -> Result<()> {
    if shape.vector_len()? != 2 {
        return Err(shape.wrong_shape("[2]"));
    }
    let numbers = shape.to_i64_vec()?;
    let expected = [declared, rows].map(|extent| i64::try_from(extent).unwrap_or(-1));
    if numbers == expected {
        return Ok(());
    }
    Err(shape.bad_weights(format!("says {numbers:?} of a matrix of {expected:?}")))
}

/// Bits of a code, from the words of a row.
fn width(weight: &TensorView<'_>, words: usize, rows: usize) -> Result<u8> {
    let fits = |bits: &u8| words_for(rows, *bits) == Some(words);
    let fills = |bits: &u8| fits(bits) && (rows * usize::from(*bits)).is_multiple_of(32);
    let mut fitting = WIDTHS.into_iter().filter(fits);
    match (WIDTHS.into_iter().find(fills), fitting.next(), fitting.next()) {
        (Some(bits), ..) | (None, Some(bits), None) => return Ok(bits),
        (None, Some(_), Some(_)) => {
            let problem = format!("has {rows} inputs, too few to tell the width of its codes");
            return Err(weight.bad_weights(problem));
        }
        (None, None, _) => {}
    }
    // Old versions left bits of a word unused, new ones let codes straddle.
    let sparse = |bits: &u8| words == rows.div_ceil(32 / usize::from(*bits));
    let other = [3u8, 5, 6, 7].into_iter().find(|bits| fits(bits) || sparse(bits));
    let Some(bits) = other else {
        return Err(weight.wrong_shape(format!("[outputs, {rows} · bits / 32], bits 2, 4 or 8,")));
    };
    Err(FormatError::Unsupported {
        path: weight.file.to_owned(),
        place: format!("`{}`", weight.name),
        format: UnsupportedFormat::PackedBits(bits),
    })
}

/// Whether groups were never assigned: every entry is −1.
fn is_unset(g_idx: &TensorView<'_>) -> bool {
    g_idx.dtype == Dtype::I32
        && !g_idx.data.is_empty()
        && g_idx.data.iter().all(|byte| *byte == 255)
}

/// Zero points packed down the outputs: one for each group and output, or one for everything.
fn zeros<'a>(
    tensor: &TensorView<'a>,
    scale: &TensorView<'_>,
    bits: u8,
    (groups, columns): (usize, usize),
) -> Result<Option<Words<'a>>> {
    let one = scale.element_count() == 1;
    let packed = match tensor.shape {
        [1] if one => WordMatrix::new(tensor.data, 1, 1),
        _ => None,
    };
    tensor.expect_dtype(Dtype::I32)?;
    let packed = packed.map_or_else(|| WordMatrix::from_tensor(tensor), Ok)?;
    let shape = (packed.rows(), packed.columns());
    if one && shape == (1, 1) {
        return Ok(equal_zeros(bits, columns, packed.code_along(0, 0, bits)));
    }
    let word_rows = words_for(columns, bits);
    if Some(shape.0) != word_rows || shape.1 != groups {
        let expected = format!("[{columns} · {bits} / 32, {groups}]");
        return Err(tensor.wrong_shape(expected));
    }
    Ok(Words::repacked(groups, shape.0, move |out| transpose(packed, 0, out)))
}
