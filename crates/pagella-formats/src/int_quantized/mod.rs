//! compressed-tensors, `int-quantized`: weights of one byte, `[out, in]`, times the scale of their
//! output. In the form of GPTQ they are 8-bit codes around 128.

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::gptq::GptqLinear;
use crate::gptq::parts::{Groups, Parts, column_scales, equal_zeros, middle_zeros};
use crate::gptq::repack::transpose_bytes;
use crate::linear::{Columns, Cut, Found, LinearRequest, Reader};
use crate::registry::WeightFormat;
use crate::tensor::TensorView;
use crate::words::{Words, words_for};

/// `int-quantized` in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "compressed-tensors int-quantized",
    id: "int-quantized",
    methods: &["compressed-tensors"],
    tensors: &[".weight", ".weight_scale", ".weight_zero_point"],
    is_source: true,
    find: |checkpoint, base| {
        checkpoint.tensor(&format!("{base}.weight_scale"))?;
        let weight = checkpoint.tensor(&format!("{base}.weight"))?;
        (weight.dtype == Dtype::Other(OtherDtype::I8)).then_some(weight)
    },
    reader: Reader::Gptq(read),
    stacked: false,
};

/// Bits of a code.
pub(crate) const BITS: u8 = 8;

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    let cut = Cut::new(request, found, request.out_features)?;
    let (columns, words) = byte_words(found, &cut, request.in_features)?;
    let scale = checkpoint.require(&format!("{base}.weight_scale"))?;
    let (scales, count) = column_scales(&scale, cut.declared, |scale| scale)?;
    let groups = Groups::consecutive(&scale, request.in_features, count)?;
    let zero_point = checkpoint.tensor(&format!("{base}.weight_zero_point"));
    let zeros = match &zero_point {
        None => middle_zeros(BITS, count, cut.declared),
        Some(tensor) => zeros(tensor, &scale, cut.declared, count)?,
    };
    let mut tensors = vec![found.weight, scale];
    tensors.extend(zero_point);
    let parts = Parts {
        bits: BITS,
        columns,
        groups,
        words,
        zeros: zeros.ok_or_else(|| scale.wrong_shape("fewer groups"))?,
        zero_offset: 0,
        stored_zeros: zero_point.is_some(),
        scales,
        rounded: false,
        tensors,
    };
    parts.with_bias(checkpoint, request, found, cut.declared)
}

/// The bytes of `found`, `[declared, rows]`, as 8-bit codes, and the columns that are taken of them.
pub(crate) fn byte_words<'a>(
    found: &Found<'a>,
    cut: &Cut,
    rows: usize,
) -> Result<(Columns, Words<'a>)> {
    let (weight, declared) = (found.weight, cut.declared);
    let wrong_shape = || weight.wrong_shape(format!("[{declared}, {rows}]"));
    if weight.matrix_shape()? != (declared, rows) || rows == 0 {
        return Err(wrong_shape());
    }
    let columns = Columns::new(declared, cut.ranges.clone()).ok_or_else(wrong_shape)?;
    let word_rows = words_for(rows, BITS).ok_or_else(wrong_shape)?;
    let words = Words::repacked(word_rows, declared, move |out| {
        transpose_bytes(weight.data, rows, declared, out);
    });
    Ok((columns, words.ok_or_else(wrong_shape)?))
}

/// Zero points of one byte, in the shape of the scales.
fn zeros<'a>(
    tensor: &TensorView<'a>,
    scale: &TensorView<'_>,
    columns: usize,
    groups: usize,
) -> Result<Option<Words<'a>>> {
    tensor.expect_dtype(Dtype::Other(OtherDtype::I8))?;
    if tensor.shape != scale.shape {
        return Err(tensor.wrong_shape(format!("{:?}, that of the scales,", scale.shape)));
    }
    if let [zero] = tensor.data {
        return Ok(equal_zeros(BITS, columns, zero ^ 0x80));
    }
    let (data, Some(row_words)) = (tensor.data, words_for(columns, BITS)) else { return Ok(None) };
    Ok(Words::repacked(groups, row_words, move |out| {
        for (group, row) in out.chunks_exact_mut(row_words * 4).enumerate() {
            let zeros = data.iter().skip(group).step_by(groups);
            row.iter_mut().zip(zeros).for_each(|(out, zero)| *out = zero ^ 0x80);
        }
    }))
}
