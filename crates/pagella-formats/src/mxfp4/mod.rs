//! MXFP4: E2M1 codes in groups of 32 along the inputs, scales that are powers of two.
//!
//! Three writers, one meaning: experts of gpt-oss stacked as `…_blocks` and `…_scales`, one linear per
//! tensor by compressed-tensors (`weight_packed`), and expert weights of DeepSeek in I8 with E8M0 scales.
//! Always stored `[out, in]`, two codes per byte, the lower one first.

use crate::checkpoint::Checkpoint;
use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::{LinearKind, WeightFormat};
use crate::small_float::{
    CodeOrder, Codes, FloatParts, Number, ScaleValues, Sharing, SmallFloatLinear, assemble,
    shape_words, slab, slab_shape,
};
use crate::tensor::TensorView;

const U8: Dtype = Dtype::Other(OtherDtype::U8);
const I8: Dtype = Dtype::Other(OtherDtype::I8);
const E8M0: Dtype = Dtype::Other(OtherDtype::F8E8M0);

/// Inputs that share a scale.
const GROUP: usize = 32;

/// MXFP4 in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "MXFP4",
    id: "mxfp4",
    // Experts of FP8 models may have 4 bits.
    methods: &["mxfp4", "compressed-tensors", "fp8"],
    tensors: &["_blocks", "_scales", ".weight_packed", ".weight_scale", ".weight", ".scale"],
    is_source: true,
    find,
    reader: Reader::SmallFloat(read),
    stacked: true,
};

fn find<'a>(checkpoint: &'a Checkpoint, base: &str) -> Option<TensorView<'a>> {
    let tensor = |suffix: &str| checkpoint.tensor(&format!("{base}{suffix}"));
    let is = |suffix: &str, dtype: Dtype| tensor(suffix).is_some_and(|found| found.dtype == dtype);
    let packed = || {
        let scaled = is(".weight_scale", U8) || is(".weight_scale", E8M0);
        tensor(".weight_packed").filter(|codes| codes.dtype == U8 && scaled)
    };
    let bytes = || tensor(".weight").filter(|codes| codes.dtype == I8 && is(".scale", E8M0));
    tensor("_blocks").or_else(packed).or_else(bytes)
}

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<SmallFloatLinear<'a>> {
    let codes = found.weight;
    let is_stacked = codes.name.ends_with("_blocks");
    let suffix = match codes.name {
        _ if is_stacked => "_scales",
        name if name.ends_with(".weight_packed") => ".weight_scale",
        _ => ".scale",
    };
    let scales = checkpoint.require(&format!("{}{suffix}", found.base))?;
    if ![U8, I8].contains(&codes.dtype) {
        return Err(codes.wrong_dtype("U8"));
    }
    if ![U8, E8M0].contains(&scales.dtype) {
        return Err(scales.wrong_dtype("U8 or F8_E8M0"));
    }
    let cut = Cut::new(request, found, request.out_features)?;
    let (inputs, groups) = (request.in_features, request.in_features / GROUP);
    let rows = cut.declared;
    let code_shape: &[usize] =
        if is_stacked { &[rows, groups, GROUP / 2] } else { &[rows, inputs / 2] };
    let whole = inputs.is_multiple_of(GROUP);
    if !whole || slab_shape(codes.shape, found.slab) != Some(code_shape) {
        let words = shape_words(found.slab, code_shape);
        return Err(codes.wrong_shape(format!("{words}, inputs in groups of {GROUP},")));
    }
    if slab_shape(scales.shape, found.slab) != Some(&[rows, groups]) {
        return Err(scales.wrong_shape(shape_words(found.slab, &[rows, groups])));
    }
    let parts = FloatParts {
        kind: LinearKind::Mxfp4,
        number: Number::E2m1,
        codes: Codes {
            data: slab(&codes, found.slab),
            order: CodeOrder::LowFirst,
            stride: inputs,
            transposed: false,
        },
        scales: ScaleValues::E8m0(slab(&scales, found.slab)),
        sharing: Sharing::Grid { rows: 1, columns: GROUP, stride: groups },
        tensors: vec![codes, scales],
    };
    assemble(checkpoint, request, found, cut, parts)
}

#[cfg(test)]
mod tests;
