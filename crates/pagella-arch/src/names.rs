//! Tensor names and shapes of a model's linears and norms.

use std::ops::Range;

use crate::geometry::Geometry;
use crate::record::{FusedLayout, Record};
use crate::spec::{BiasRule, FusedSpec, LinearSpec};

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

/// Query, key and value projections of a layer, split or as rows of the fused tensor.
pub(crate) fn qkv(
    layer: usize,
    sizes: &Geometry,
    record: &Record,
    bias: BiasRule,
) -> [LinearSpec; 3] {
    let (q, kv) = (sizes.q_width(), sizes.kv_width());
    let total = q + 2 * kv;
    let parts = match record.fused_qkv.map_or(FusedLayout::Parts, |fused| fused.layout) {
        FusedLayout::Parts => [0..q, q..q + kv, q + kv..total].map(|rows| Vec::from([rows])),
        FusedLayout::KvHeads => kv_head_rows(sizes),
    };
    let fused = record.fused_qkv.map(|fused| in_layer(layer, fused.name));
    let [q_name, k_name, v_name, _] = record.attention;
    let [q_rows, k_rows, v_rows] = parts;
    let part = |name, rows| {
        let base = in_layer(layer, name);
        let linear = fused_part(base, sizes.hidden, fused.clone(), total, rows, bias);
        LinearSpec { transposed: record.transposed, ..linear }
    };
    [part(q_name, q_rows), part(k_name, k_rows), part(v_name, v_rows)]
}

/// Rows of queries, keys and values where every key/value head brings its query heads along.
fn kv_head_rows(sizes: &Geometry) -> [Vec<Range<usize>>; 3] {
    let (d, group) = (sizes.head_dim, sizes.heads / sizes.kv_heads);
    let rows = |first: usize, heads: usize| -> Vec<Range<usize>> {
        let start = |kv_head: usize| (kv_head * (group + 2) + first) * d;
        (0..sizes.kv_heads).map(|kv_head| start(kv_head)..start(kv_head) + heads * d).collect()
    };
    [rows(0, group), rows(group, 1), rows(group + 1, 1)]
}

/// Gate and up projections, split or as rows of the fused tensor. `names` start with a dot.
pub(crate) fn gate_up(
    layer: usize,
    names: [&str; 2],
    fused: Option<&str>,
    (hidden, inner): (usize, usize),
    bias: BiasRule,
) -> [LinearSpec; 2] {
    let part = |name: &str, rows: Range<usize>| {
        let base = in_layer(layer, name);
        let fused = fused.map(|fused| in_layer(layer, fused));
        fused_part(base, hidden, fused, 2 * inner, vec![rows], bias)
    };
    let [gate, up] = names;
    [part(gate, 0..inner), part(up, inner..2 * inner)]
}

fn fused_part(
    base: String,
    in_features: usize,
    fused: Option<String>,
    total_out: usize,
    rows: Vec<Range<usize>>,
    bias: BiasRule,
) -> LinearSpec {
    let outputs = rows.iter().map(Range::len).sum();
    let split = linear(base, (in_features, outputs), bias);
    let fused = fused.map(|base| FusedSpec { base, total_out, rows, step: 1, slab: None });
    LinearSpec { fused, ..split }
}
