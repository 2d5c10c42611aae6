//! A spec names exactly the tensors that transformers' state dict of the same config has.

#[allow(dead_code, reason = "each test file uses its part of the support")]
mod support;

use std::collections::BTreeMap;

use pagella_arch::{BiasRule, LinearSpec};
use serde_json::{Value, json};
use support::{Case, cases};

#[test]
fn names_and_shapes_cover_the_state_dict_exactly() {
    for case in cases() {
        let stated: BTreeMap<String, Value> = case.tensors.clone().into_iter().collect();
        assert_eq!(expected(&case), stated, "{}", case.name);
    }
}

#[test]
fn parameters_are_counted_as_transformers_counts_them() {
    for case in cases() {
        let elements = |shape: &Value| -> u64 {
            shape.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).product()
        };
        let total: u64 = case.tensors.values().map(elements).sum();
        assert_eq!(case.spec.params(), total, "{}", case.name);
    }
}

#[test]
fn fused_tensors_may_also_come_in_split_form() {
    let case = cases().into_iter().find(|case| case.name == "phi3-window-partial").unwrap();
    let (_, k) = case.spec.linear_specs().find(|(label, _)| label == "layers.2.attn.k").unwrap();
    assert_eq!(k.bases, ["model.layers.2.self_attn.k_proj"]);
    let fused = k.fused.as_ref().unwrap();
    assert_eq!(fused.base, "model.layers.2.self_attn.qkv_proj");
    assert_eq!(fused.total_out, 160 + 2 * 32);
    assert!(matches!(fused.rows.as_slice(), [rows] if *rows == (160..192)));
    let (_, up) = case.spec.linear_specs().find(|(label, _)| label == "layers.2.mlp.up").unwrap();
    assert_eq!(up.bases, ["model.layers.2.mlp.up_proj"]);
    let rows = &up.fused.as_ref().unwrap().rows;
    assert!(matches!(rows.as_slice(), [rows] if *rows == (160..320)));
}

/// Tensors the spec asks for, fused ones where there are such.
fn expected(case: &Case) -> BTreeMap<String, Value> {
    let spec = &case.spec;
    let mut tensors = BTreeMap::new();
    tensors.insert(format!("{}.weight", spec.embed.name), json!([spec.vocab, spec.hidden]));
    for (label, linear) in spec.linear_specs() {
        if label != "head" || !spec.is_tied() {
            insert_linear(&mut tensors, linear);
        }
    }
    for (_, norm) in spec.norm_specs() {
        tensors.insert(format!("{}.weight", norm.bases[0]), json!([norm.width]));
    }
    tensors
}

fn insert_linear(tensors: &mut BTreeMap<String, Value>, linear: &LinearSpec) {
    let (base, outputs) = match &linear.fused {
        Some(fused) => (&fused.base, fused.total_out),
        None => (&linear.bases[0], linear.out_features),
    };
    tensors.insert(format!("{base}.weight"), json!([outputs, linear.in_features]));
    if linear.bias == BiasRule::Required {
        tensors.insert(format!("{base}.bias"), json!([outputs]));
    }
}
