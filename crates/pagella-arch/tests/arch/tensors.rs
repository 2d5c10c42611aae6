//! A spec names exactly the tensors that a checkpoint of the same config has.

use std::collections::BTreeSet;

use crate::support::{Case, cases};
use pagella_arch::{BiasRule, NormKind, RenameRule};
use serde_json::Value;

#[test]
fn names_cover_the_state_dict_exactly() {
    for case in cases() {
        let stated: BTreeSet<String> =
            case.tensors.keys().map(|name| renamed(case.spec.renames, name)).collect();
        assert_eq!(named(&case, &stated), stated, "{}", case.name);
    }
}

#[test]
fn parameters_are_counted_as_transformers_counts_them() {
    for case in cases() {
        let elements = |shape: &Value| -> u64 {
            shape.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).product()
        };
        // Biases of norms are not counted.
        let is_norm = |name: &str| {
            let base = name.strip_suffix(".bias").and_then(|base| base.rsplit('.').next());
            base.is_some_and(|base| base.contains("norm") || base.starts_with("ln"))
        };
        let counted = case.tensors.iter().filter(|(name, _)| !is_norm(name));
        let total: u64 = counted
            .map(|(name, shape)| match shape.as_array().unwrap().as_slice() {
                // A norm of heads counts once, also where every head has its own weights.
                [_, width] if name.ends_with("_norm.weight") => width.as_u64().unwrap(),
                _ => elements(shape),
            })
            .sum();
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

/// Tensors of `stated` that the spec names; all that it needs are there.
fn named(case: &Case, stated: &BTreeSet<String>) -> BTreeSet<String> {
    let spec = &case.spec;
    let stored = |base: &str| {
        [format!("{base}.weight"), base.to_owned()].into_iter().find(|name| stated.contains(name))
    };
    let mut found = BTreeSet::new();
    let mut take = |bases: &[&str], may_have_bias: bool| {
        let base = bases.iter().find(|base| stored(base).is_some());
        let base = base.expect("a checkpoint has what the spec names");
        found.extend(stored(base));
        let bias = format!("{base}.bias");
        found.extend(Some(bias).filter(|bias| may_have_bias && stated.contains(bias)));
    };
    let positions = spec.embed.positions.as_deref();
    for table in [Some(spec.embed.name.as_str()), positions].into_iter().flatten() {
        take(&[table], false);
    }
    for (_, linear) in spec.linear_specs() {
        let fused = linear.fused.as_ref().map(|fused| fused.base.as_str());
        let bases: Vec<&str> =
            fused.into_iter().chain(linear.bases.iter().map(String::as_str)).collect();
        take(&bases, linear.bias != BiasRule::Forbidden);
    }
    for (_, norm) in spec.norm_specs().filter(|(_, norm)| !norm.bases.is_empty()) {
        let bases: Vec<&str> = norm.bases.iter().map(String::as_str).collect();
        take(&bases, norm.kind == NormKind::Layer);
    }
    for (_, base, _) in spec.vector_specs() {
        take(&[base], false);
    }
    found
}

/// A name after the renames of its family.
fn renamed(rules: &[RenameRule], name: &str) -> String {
    rules.iter().fold(name.to_owned(), |name, rule| {
        match (rule.anchored, name.strip_prefix(rule.from)) {
            (true, Some(rest)) => format!("{}{rest}", rule.to),
            (true, None) => name,
            (false, _) => name.replace(rule.from, rule.to),
        }
    })
}
