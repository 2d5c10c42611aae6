//! Tensor names and shapes of a model's linears and norms.

use std::ops::Range;

use crate::geometry::Geometry;
use crate::record::Record;
use crate::spec::{BiasRule, FusedSpec, LinearSpec, NormKind, NormSpec};

/// Base name of the token embedding.
pub(crate) const EMBED: &str = "model.embed_tokens";
/// Base name of the last norm.
pub(crate) const FINAL_NORM: &str = "model.norm";
/// Base name of the output head.
pub(crate) const HEAD: &str = "lm_head";

/// Base name of something in a layer; `name` starts with a dot.
pub(crate) fn in_layer(layer: usize, name: &str) -> String {
    format!("model.layers.{layer}{name}")
}

/// A linear under one name.
pub(crate) fn linear(base: String, shape: (usize, usize), bias: BiasRule) -> LinearSpec {
    LinearSpec {
        bases: vec![base],
        fused: None,
        in_features: shape.0,
        out_features: shape.1,
        bias,
        transposed: false,
    }
}

/// An RMS norm.
pub(crate) fn rms_norm(base: String, width: usize, eps: f32, offset: f32) -> NormSpec {
    NormSpec { bases: vec![base], kind: NormKind::Rms, eps, offset, width }
}

/// Query, key and value projections of a layer, split or as rows of the fused tensor.
pub(crate) fn qkv(
    layer: usize,
    sizes: &Geometry,
    record: &Record,
    bias: BiasRule,
) -> [LinearSpec; 3] {
    let (q, kv) = (sizes.q_width(), sizes.kv_width());
    let total = q + 2 * kv;
    let part = |name: &str, rows: Range<usize>| {
        let base = in_layer(layer, name);
        fused_part(
            base,
            sizes.hidden,
            record.fused_qkv.map(|f| in_layer(layer, f)),
            total,
            rows,
            bias,
        )
    };
    [
        part(".self_attn.q_proj", 0..q),
        part(".self_attn.k_proj", q..q + kv),
        part(".self_attn.v_proj", q + kv..total),
    ]
}

/// Gate and up projections of a layer, split or as rows of the fused tensor.
pub(crate) fn gate_up(
    layer: usize,
    sizes: &Geometry,
    record: &Record,
    bias: BiasRule,
) -> [LinearSpec; 2] {
    let inner = sizes.intermediate;
    let part = |name: &str, rows: Range<usize>| {
        let base = in_layer(layer, name);
        let fused = record.fused_gate_up.map(|f| in_layer(layer, f));
        fused_part(base, sizes.hidden, fused, 2 * inner, rows, bias)
    };
    [part(".mlp.gate_proj", 0..inner), part(".mlp.up_proj", inner..2 * inner)]
}

fn fused_part(
    base: String,
    in_features: usize,
    fused: Option<String>,
    total_out: usize,
    rows: Range<usize>,
    bias: BiasRule,
) -> LinearSpec {
    let split = linear(base, (in_features, rows.len()), bias);
    let fused = fused.map(|base| FusedSpec { base, total_out, rows: vec![rows] });
    LinearSpec { fused, ..split }
}
