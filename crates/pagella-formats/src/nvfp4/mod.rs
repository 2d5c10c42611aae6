//! NVFP4: E2M1 codes in groups of 16 along the inputs, E4M3 scales under one scale of the matrix.
//!
//! Two writers: with compressed-tensors (`weight_packed`) the scale of the matrix divides, with ModelOpt
//! (`weight`, `weight_scale_2`) it multiplies. They lie on different sides of 1, so that one taken for
//! the other is noticed.

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::{LinearKind, WeightFormat};
use crate::small_float::{
    CodeOrder, Codes, FloatParts, Number, ScaleValues, Sharing, SmallFloatLinear, TensorScale,
    assemble,
};
use crate::tensor::TensorView;

const U8: Dtype = Dtype::Other(OtherDtype::U8);
const E4M3: Dtype = Dtype::Other(OtherDtype::F8E4M3);
const E8M0: Dtype = Dtype::Other(OtherDtype::F8E8M0);

/// Inputs that share a scale.
const GROUP: usize = 16;

/// NVFP4 in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "NVFP4",
    id: "nvfp4",
    methods: &["modelopt", "compressed-tensors"],
    tensors: &[
        ".weight_packed",
        ".weight_scale",
        ".weight_global_scale",
        ".weight",
        ".weight_scale_2",
    ],
    is_source: true,
    find: |checkpoint, base| {
        let tensor = |suffix: &str| checkpoint.tensor(&format!("{base}{suffix}"));
        // Exponents for scales are those of MXFP4.
        let exponents =
            tensor(".weight_scale").is_some_and(|scale| [U8, E8M0].contains(&scale.dtype));
        let is_own = !exponents || tensor(".weight_global_scale").is_some();
        let packed = tensor(".weight_packed").filter(|codes| codes.dtype == U8 && is_own);
        packed.or_else(|| tensor(".weight").filter(|_| tensor(".weight_scale_2").is_some()))
    },
    reader: Reader::SmallFloat(read),
    stacked: false,
};

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<SmallFloatLinear<'a>> {
    let base = &found.base;
    let codes = found.weight;
    codes.expect_dtype(U8)?;
    let scales = checkpoint.require(&format!("{base}.weight_scale"))?;
    let divides = codes.name.ends_with(".weight_packed");
    let suffix = if divides { ".weight_global_scale" } else { ".weight_scale_2" };
    let tensor_scale = checkpoint.require(&format!("{base}{suffix}"))?;
    if scales.dtype != E4M3 {
        return Err(scales.wrong_dtype("F8_E4M3, not an order made for one chip,"));
    }
    let cut = Cut::new(request, found, request.out_features)?;
    let (inputs, groups) = (request.in_features, request.in_features / GROUP);
    let rows = cut.declared;
    if !inputs.is_multiple_of(GROUP) || codes.shape != [rows, inputs / 2] {
        let wanted = format!("[{rows}, {inputs} / 2], inputs in groups of {GROUP},");
        return Err(codes.wrong_shape(wanted));
    }
    if scales.shape != [rows, groups] {
        return Err(scales.wrong_shape(format!("[{rows}, {groups}]")));
    }
    let scale = read_tensor_scale(&tensor_scale, divides)?;
    let parts = FloatParts {
        kind: LinearKind::Nvfp4,
        number: Number::E2m1,
        codes: Codes {
            data: codes.data,
            order: CodeOrder::LowFirst,
            stride: inputs,
            transposed: false,
        },
        scales: ScaleValues::E4m3(scales.data, scale),
        sharing: Sharing::Grid { rows: 1, columns: GROUP, stride: groups },
        tensors: vec![codes, scales, tensor_scale],
    };
    assemble(checkpoint, request, found, cut, parts)
}

/// The scale of the matrix, on the side of 1 where its writer has it.
fn read_tensor_scale(tensor: &TensorView<'_>, divides: bool) -> Result<TensorScale> {
    tensor.expect_dtype(Dtype::F32)?;
    let scale = match (tensor.shape, tensor.to_f32()?.as_slice()) {
        ([] | [1], [scale]) => *scale,
        _ => return Err(tensor.wrong_shape("one number")),
    };
    if !scale.is_finite() || scale <= 0.0 {
        return Err(tensor.bad_weights(format!("is {scale}, which is no scale")));
    }
    match divides {
        true if scale >= 1.0 => Ok(TensorScale::Divide(scale)),
        false if scale <= 1.0 => Ok(TensorScale::Multiply(scale)),
        _ => {
            let (does, other) =
                if divides { ("divides", "multiplies") } else { ("multiplies", "divides") };
            Err(tensor.bad_weights(format!(
                "is {scale}, on the wrong side of 1 for a scale that {does}; it seems to be one \
                 that {other}"
            )))
        }
    }
}

#[cfg(test)]
mod tests;
