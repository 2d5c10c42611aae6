//! FP8: one float of 8 bits per weight, under a scale per matrix, per output or per rectangle.
//!
//! All scales multiply, also the one that is called `weight_scale_inv`. What a scale is for follows
//! from its shape; only the size of rectangles is taken from the configuration, because the last ones
//! may be cut off and the shape does not say where.

mod scale;

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::{LinearKind, WeightFormat};
use crate::small_float::{
    CodeOrder, Codes, FloatParts, Number, SmallFloatLinear, assemble, shape_words, slab, slab_shape,
};
use crate::tensor::TensorView;

/// FP8 in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "FP8",
    id: "fp8",
    methods: &["fp8", "fbgemm_fp8", "compressed-tensors", "modelopt"],
    tensors: &[
        ".weight",
        ".weight_scale_inv",
        ".weight_scale",
        ".scale",
        "",
        "_scale_inv",
        "_scale",
    ],
    is_source: true,
    find: |checkpoint, base| {
        let weight = checkpoint.tensor(&format!("{base}.weight"));
        weight.or_else(|| checkpoint.tensor(base)).filter(|weight| weight.dtype.is_float8())
    },
    reader: Reader::SmallFloat(read),
    stacked: true,
};

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<SmallFloatLinear<'a>> {
    let codes = found.weight;
    let number = match codes.dtype {
        Dtype::Other(OtherDtype::F8E4M3) => Number::E4m3,
        Dtype::Other(OtherDtype::F8E5M2) => Number::E5m2,
        _ => return Err(codes.wrong_dtype("F8_E4M3 or F8_E5M2")),
    };
    let cut = Cut::new(request, found, request.out_features)?;
    // As for plain weights: tools that split a fused tensor write the parts in the usual order.
    let transposed = request.transposed && (found.fused || request.fused.is_none());
    let shape = match transposed {
        true => [request.in_features, cut.declared],
        false => [cut.declared, request.in_features],
    };
    if slab_shape(codes.shape, found.slab) != Some(&shape) {
        return Err(codes.wrong_shape(shape_words(found.slab, &shape)));
    }
    let scale = scale_tensor(checkpoint, found)?;
    let groups = checkpoint.scale_groups();
    let (scales, sharing) = scale::read(&scale, found.slab, shape, transposed, groups)?;
    let parts = FloatParts {
        kind: LinearKind::Fp8,
        number,
        codes: Codes {
            data: slab(&codes, found.slab),
            order: CodeOrder::Bytes,
            stride: shape[1],
            transposed,
        },
        scales,
        sharing,
        tensors: vec![codes, scale],
    };
    assemble(checkpoint, request, found, cut, parts)
}

/// The scales beside a weight, under the names that writers give them.
fn scale_tensor<'a>(checkpoint: &'a Checkpoint, found: &Found<'_>) -> Result<TensorView<'a>> {
    let weight = found.weight.name;
    let names =
        [format!("{weight}_scale_inv"), format!("{weight}_scale"), format!("{}.scale", found.base)];
    names.iter().find_map(|name| checkpoint.tensor(name)).ok_or_else(|| {
        found.weight.bad_weights(format!("is {} and has no scale beside it", found.weight.dtype))
    })
}

#[cfg(test)]
mod tests;
