//! Rotary tables against transformers' own functions, and the parts transformers does not have.

use std::path::Path;

use pagella_arch::{ArchError, RopeOverride, RopeSpec, SpecOptions, spec_from_json};
use serde_json::{Value, json};

/// Largest relative difference of a frequency. f32 alone gives 1e-7.
const TOLERANCE: f64 = 1e-6;

#[test]
fn default_matches_transformers() {
    check_goldens("default", 5);
}

#[test]
fn linear_matches_transformers() {
    check_goldens("linear", 2);
}

#[test]
fn dynamic_matches_transformers_below_at_and_above_the_native_length() {
    check_goldens("dynamic", 4);
}

#[test]
fn llama3_matches_transformers() {
    check_goldens("llama3", 3);
}

#[test]
fn longrope_matches_transformers_below_at_and_above_the_original_length() {
    check_goldens("longrope", 7);
}

#[test]
fn yarn_matches_transformers_with_every_key() {
    check_goldens("yarn", 8);
}

#[test]
fn the_attention_factor_does_not_follow_the_users_context() {
    let factors = json!({ "rope_type": "longrope", "short_factor": vec![1.0; 8], "long_factor": vec![2.0; 8] });
    let config = config(json!({
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_scaling": factors
    }));
    let short = rope(&config, options(4096, None)).unwrap();
    let long = rope(&config, options(8192, None)).unwrap();
    assert_eq!(short.attention_factor, long.attention_factor);
    assert!((long.attention_factor - 1.190_238).abs() < 1e-5, "{}", long.attention_factor);
    assert_eq!(short.inv_freq[0], 2.0 * long.inv_freq[0]);
}

#[test]
fn an_mscale_of_the_chosen_set_is_honoured() {
    let factors = json!({
        "type": "longrope", "short_factor": vec![1.0; 8], "long_factor": vec![2.0; 8],
        "short_mscale": 1.5, "long_mscale": 1.75
    });
    let config =
        config(json!({ "original_max_position_embeddings": 1024, "rope_scaling": factors }));
    assert_eq!(rope(&config, options(1024, None)).unwrap().attention_factor, 1.5);
    assert_eq!(rope(&config, options(1025, None)).unwrap().attention_factor, 1.75);
}

#[test]
fn the_yarn_ramp_does_not_follow_the_users_context() {
    let scaling =
        json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512 });
    let config = config(json!({ "rope_scaling": scaling }));
    let of_context = |context| rope(&config, options(context, None)).unwrap();
    assert_eq!(of_context(256), of_context(65536));
}

#[test]
fn alpha_uses_the_rotated_width() {
    for scaling in [
        Value::Null,
        json!({ "rope_type": "llama3", "factor": 1.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64 }),
    ] {
        let config = config(json!({ "partial_rotary_factor": 0.5, "rope_scaling": scaling }));
        let rope = rope(&config, options(2048, Some(RopeOverride::NtkAlpha(4.0)))).unwrap();
        // Of 16 elements 8 are rotated; the exponent is 8 / 6.
        let base = 10_000.0 * 4f64.powf(8.0 / 6.0);
        let wanted: Vec<f64> = (0..4).map(|i| base.powf(-f64::from(i) / 4.0)).collect();
        assert_close(&rope.inv_freq, &wanted, "alpha");
    }
}

#[test]
fn a_linear_override_replaces_the_configs_factor_and_joins_other_methods() {
    let linear = config(json!({ "rope_scaling": { "type": "linear", "factor": 8.0 } }));
    let llama3 =
        json!({ "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0 });
    let llama3 = config(json!({ "rope_scaling": llama3 }));
    let user = Some(RopeOverride::Linear(2.0));
    let plain = rope(&config(json!({})), options(2048, None)).unwrap().inv_freq;
    let halved = |freqs: &[f32]| freqs.iter().map(|f| f / 2.0).collect::<Vec<_>>();
    assert_eq!(rope(&linear, options(2048, user)).unwrap().inv_freq, halved(&plain));
    let unscaled = rope(&llama3, options(2048, None)).unwrap().inv_freq;
    assert_eq!(rope(&llama3, options(2048, user)).unwrap().inv_freq, halved(&unscaled));
}

#[test]
fn a_yarn_override_equals_a_yarn_config() {
    let stated = json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048 });
    let stated = config(json!({ "rope_scaling": stated }));
    let want = rope(&stated, options(8192, None)).unwrap();
    let user = Some(RopeOverride::Yarn(4.0));
    assert_eq!(rope(&config(json!({})), options(8192, user)).unwrap(), want);
    // A config that is yarn already keeps its original length.
    let other = json!({ "type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048 });
    let other = config(json!({ "max_position_embeddings": 4096, "rope_scaling": other }));
    assert_eq!(rope(&other, options(8192, user)).unwrap(), want);
}

#[test]
fn overrides_out_of_range_are_refused_by_name() {
    for (user, name) in [
        (RopeOverride::Linear(0.0), "rope linear factor"),
        (RopeOverride::Linear(f32::NAN), "rope linear factor"),
        (RopeOverride::NtkAlpha(-1.0), "rope alpha"),
        (RopeOverride::NtkAlpha(f32::INFINITY), "rope alpha"),
        (RopeOverride::Yarn(f32::NEG_INFINITY), "rope yarn factor"),
    ] {
        let error = rope(&config(json!({})), options(2048, Some(user))).unwrap_err();
        assert!(matches!(error, ArchError::BadOption { option, .. } if option == name), "{error}");
    }
}

#[test]
fn type_and_rope_type_may_both_be_there() {
    for (new, old) in [("linear", "linear"), ("default", "linear"), ("linear", "default")] {
        let scaling = json!({ "rope_type": new, "type": old, "factor": 2.0 });
        let rope = rope(&config(json!({ "rope_scaling": scaling })), options(2048, None)).unwrap();
        assert_eq!(rope.inv_freq[0], 0.5, "{new} {old}");
    }
    let scaling = json!({ "rope_type": "linear", "type": "yarn", "factor": 2.0 });
    let error = rope(&config(json!({ "rope_scaling": scaling })), options(2048, None)).unwrap_err();
    assert!(
        error.to_string().contains(r#"`rope_type` is "linear" but `type` is "yarn""#),
        "{error}"
    );
}

#[test]
fn unknown_kinds_are_errors_that_list_the_known_ones() {
    for kind in ["pose", "ntk", "proportional", ""] {
        let config = config(json!({ "rope_scaling": { "type": kind, "factor": 2.0 } }));
        let error = rope(&config, options(2048, None)).unwrap_err().to_string();
        let known = "default, mrope, linear, dynamic, llama3, longrope, su, yarn";
        assert!(error.contains(kind) && error.contains(known), "{error}");
    }
    let unnamed = config(json!({ "rope_scaling": { "factor": 2.0 } }));
    let error = rope(&unnamed, options(2048, None)).unwrap_err().to_string();
    assert!(error.contains("`rope_scaling.rope_type` or `rope_scaling.type`"), "{error}");
}

#[test]
fn rope_parameters_carry_their_own_base_and_win_over_the_top_level() {
    let parameters =
        json!({ "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5 });
    let rope =
        rope(&config(json!({ "rope_parameters": parameters })), options(2048, None)).unwrap();
    assert_eq!(rope.rotary_dim, 8);
    assert_close(&rope.inv_freq, &[1.0, 0.316_227_766, 0.1, 0.031_622_776_6], "theta 100");
}

#[test]
fn phi3_configs_may_call_longrope_yarn() {
    let scaling =
        json!({ "type": "yarn", "short_factor": vec![1.0; 8], "long_factor": vec![4.0; 8] });
    let mut config =
        config(json!({ "original_max_position_embeddings": 1024, "rope_scaling": scaling }));
    config["architectures"] = json!(["Phi3ForCausalLM"]);
    assert_eq!(rope(&config, options(2048, None)).unwrap().inv_freq[0], 0.25);
}

fn check_goldens(kind: &str, n_cases: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/rope");
    let text = std::fs::read_to_string(root.join(format!("{kind}.json"))).expect("goldens exist");
    let goldens: Vec<Value> = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(goldens.len(), n_cases);
    for (i, golden) in goldens.iter().enumerate() {
        let context = golden["context"].as_u64().expect("a number") as usize;
        let rope = rope(&golden["config"], options(context, None)).expect("a valid config");
        let list = golden["inv_freq"].as_array().expect("a list");
        let want: Vec<f64> = list.iter().map(|f| f.as_f64().expect("a number")).collect();
        let label = format!("{kind} case {i}");
        assert_eq!(rope.rotary_dim, 2 * want.len(), "{label}");
        assert_close(&rope.inv_freq, &want, &label);
        let factor = golden["attention_factor"].as_f64().expect("a number");
        assert_close(&[rope.attention_factor], &[factor], &label);
    }
}

fn assert_close(got: &[f32], want: &[f64], label: &str) {
    assert_eq!(got.len(), want.len(), "{label}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let relative = (f64::from(*got) - want).abs() / want;
        assert!(relative < TOLERANCE, "{label}, pair {i}: {got} is not {want}");
    }
}

/// A one-layer Llama with heads of 16 elements and 2048 positions, changed by `changes`.
fn config(changes: Value) -> Value {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048
    });
    let map = config.as_object_mut().expect("an object");
    map.extend(changes.as_object().expect("an object").clone());
    config
}

fn options(context: usize, rope: Option<RopeOverride>) -> SpecOptions {
    SpecOptions { context: Some(context), rope, ..SpecOptions::default() }
}

fn rope(config: &Value, options: SpecOptions) -> Result<RopeSpec, ArchError> {
    let spec = spec_from_json(config.to_string().as_bytes(), None, &options)?;
    Ok(spec.ropes.into_iter().next().expect("one table"))
}
