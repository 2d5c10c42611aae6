//! bitsandbytes of 4 bits, nf4 and fp4: codes of a table that the file holds, in runs over all weights.
//!
//! The matrix `[out, in]` is one run of weights, two codes per byte and the higher one first; a scale is
//! for `blocksize` of them, whatever the rows. With double quantisation scales are codes themselves.

mod state;

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::{LinearKind, WeightFormat};
use crate::small_float::{
    CodeOrder, Codes, FloatParts, NestedScales, Number, ScaleValues, Sharing, SmallFloatLinear,
    assemble,
};
use crate::tensor::TensorView;
use state::{NestedState, QuantState};

const U8: Dtype = Dtype::Other(OtherDtype::U8);

/// Codes that a weight may have.
const TABLE_LEN: usize = 16;
/// Codes that a scale may have.
const SCALE_CODES: usize = 256;

/// bitsandbytes of 4 bits in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "bitsandbytes 4-bit",
    id: "bnb4",
    methods: &["bitsandbytes"],
    tensors: &[
        ".weight",
        ".weight.absmax",
        ".weight.quant_map",
        ".weight.nested_absmax",
        ".weight.nested_quant_map",
        ".weight.quant_state.bitsandbytes__nf4",
        ".weight.quant_state.bitsandbytes__fp4",
    ],
    is_source: true,
    find: |checkpoint, base| {
        let has = |suffix: &str| checkpoint.contains(&format!("{base}.weight.{suffix}"));
        let is_quantized = has("absmax") || state::NAMES.iter().any(|name| has(name));
        checkpoint.tensor(&format!("{base}.weight")).filter(|_| is_quantized)
    },
    reader: Reader::SmallFloat(read),
    stacked: false,
};

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<SmallFloatLinear<'a>> {
    let codes = found.weight;
    codes.expect_dtype(U8)?;
    let weight = |suffix: &str| format!("{}.weight.{suffix}", found.base);
    let state_tensor = state::NAMES.iter().find_map(|name| checkpoint.tensor(&weight(name)));
    let state_tensor = match state_tensor {
        Some(tensor) => tensor,
        None => checkpoint.require(&weight(state::NAMES[0]))?,
    };
    let state = QuantState::read(&state_tensor)?;
    let cut = Cut::new(request, found, request.out_features)?;
    let (rows, inputs) = (cut.declared, request.in_features);
    if state.shape != [rows, inputs] {
        let [n, k] = state.shape;
        let problem =
            format!("says that the matrix is [{n}, {k}], which is to be [{rows}, {inputs}]");
        return Err(state_tensor.bad_weights(problem));
    }
    let Some(weights) = rows.checked_mul(inputs).filter(|weights| *weights > 0) else {
        return Err(codes.wrong_shape("at least one weight"));
    };
    if codes.element_count() != weights.div_ceil(2) {
        return Err(codes.wrong_shape(format!("[{}, 1]", weights.div_ceil(2))));
    }
    let absmax = checkpoint.require(&weight("absmax"))?;
    let map = checkpoint.require(&weight("quant_map"))?;
    let mut tensors = vec![codes, absmax, map, state_tensor];
    let n_scales = weights.div_ceil(state.run);
    if absmax.element_count() != n_scales {
        return Err(absmax.wrong_shape(format!("[{n_scales}] for runs of {}", state.run)));
    }
    let scales = match state.nested {
        None => {
            absmax.expect_dtype(Dtype::F32)?;
            ScaleValues::F32(absmax.data)
        }
        Some(nested) => {
            absmax.expect_dtype(U8)?;
            let second = checkpoint.require(&weight("nested_absmax"))?;
            let map = checkpoint.require(&weight("nested_quant_map"))?;
            tensors.extend([second, map]);
            ScaleValues::Nested(nested_scales(&absmax, &nested, &second, &map)?)
        }
    };
    let mut table = [0.0; TABLE_LEN];
    table.copy_from_slice(&numbers(&map, TABLE_LEN)?);
    let parts = FloatParts {
        kind: LinearKind::Bnb4,
        number: Number::Table(table),
        codes: Codes {
            data: codes.data,
            order: CodeOrder::HighFirst,
            stride: inputs,
            transposed: false,
        },
        scales,
        sharing: Sharing::Run(state.run),
        tensors,
    };
    assemble(checkpoint, request, found, cut, parts)
}

/// Scales that are codes, with the scales `second` and the values `map` of those.
fn nested_scales<'a>(
    codes: &TensorView<'a>,
    state: &NestedState,
    second: &TensorView<'_>,
    map: &TensorView<'_>,
) -> Result<NestedScales<'a>> {
    Ok(NestedScales {
        codes: codes.data,
        map: numbers(map, SCALE_CODES)?,
        absmax: numbers(second, codes.element_count().div_ceil(state.run))?,
        shared_by: state.run,
        offset: state.offset,
    })
}

/// `count` finite numbers.
fn numbers(tensor: &TensorView<'_>, count: usize) -> Result<Vec<f32>> {
    tensor.expect_dtype(Dtype::F32)?;
    if tensor.element_count() != count {
        return Err(tensor.wrong_shape(format!("[{count}]")));
    }
    tensor.to_finite_f32()
}

#[cfg(test)]
mod tests;
