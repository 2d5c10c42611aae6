//! bitsandbytes, 8 bits: weights of one byte, `[out, in]`, and the largest magnitude of every output.
//! In the form of GPTQ they are 8-bit codes around 128.

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::gptq::GptqLinear;
use crate::gptq::parts::{Groups, Parts, column_scales, middle_zeros};
use crate::int_quantized::{BITS, byte_words};
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::WeightFormat;

/// 8-bit bitsandbytes in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "bitsandbytes int8",
    id: "bnb-int8",
    methods: &["bitsandbytes"],
    tensors: &[".weight", ".SCB", ".weight_format"],
    is_source: true,
    find: |checkpoint, base| {
        checkpoint.tensor(&format!("{base}.SCB"))?;
        let weight = checkpoint.tensor(&format!("{base}.weight"))?;
        (!weight.dtype.is_weight_float()).then_some(weight)
    },
    reader: Reader::Gptq(read),
    stacked: false,
};

/// The code of the largest magnitude.
const LARGEST: f32 = 127.0;

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    found.weight.expect_dtype(Dtype::Other(OtherDtype::I8))?;
    let cut = Cut::new(request, found, request.out_features)?;
    let (columns, words) = byte_words(found, &cut, request.in_features)?;
    let mut tensors = vec![found.weight];
    if let Some(format) = checkpoint.tensor(&format!("{base}.weight_format")) {
        match (format.shape, format.data) {
            ([] | [1], [0]) => tensors.push(format),
            _ => return Err(format.bad_weights("is not 0, the order of rows that is read")),
        }
    }
    let largest = checkpoint.require(&format!("{base}.SCB"))?;
    largest.expect_dtype(Dtype::F32)?;
    if largest.vector_len()? != cut.declared {
        return Err(largest.wrong_shape(format!("[{}]", cut.declared)));
    }
    let (scales, count) = column_scales(&largest, cut.declared, |largest| largest / LARGEST)?;
    tensors.push(largest);
    let zeros = middle_zeros(BITS, count, cut.declared);
    let parts = Parts {
        bits: BITS,
        columns,
        groups: Groups::consecutive(&largest, request.in_features, count)?,
        words,
        zeros: zeros.ok_or_else(|| largest.wrong_shape("fewer outputs"))?,
        zero_offset: 0,
        stored_zeros: false,
        scales,
        rounded: false,
        tensors,
    };
    parts.with_bias(checkpoint, request, found, cut.declared)
}
