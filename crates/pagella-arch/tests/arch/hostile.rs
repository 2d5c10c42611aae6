//! Configs nobody should write: every one ends in an error that names the file and the key, none in
//! a panic or in memory beyond reason.

use crate::support::config::{config, parse};
use pagella_arch::{
    ArchError, ModelSpec, RopeOverride, SpecOptions, families, load_spec, spec_from_json,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn numbers_out_of_range_name_key_value_and_range() {
    for (key, value) in [
        ("hidden_size", json!(0)),
        ("hidden_size", json!(1e30)),
        ("hidden_size", json!(-64)),
        ("vocab_size", json!(u64::MAX)),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(i64::MIN)),
        ("head_dim", json!(1 << 20)),
        ("intermediate_size", json!(1u64 << 40)),
        ("max_position_embeddings", json!(1e18)),
        ("sliding_window", json!(-1)),
        ("rms_norm_eps", json!(-1e-6)),
        ("rms_norm_eps", json!(1e300)),
        ("rope_theta", json!(0.0)),
        ("partial_rotary_factor", json!(2.0)),
        ("attn_logit_softcapping", json!(-50.0)),
        ("eos_token_id", json!([1, 1e12])),
        ("logits_scaling", json!(0)),
    ] {
        let error = parse("MistralForCausalLM", json!({ key: value })).unwrap_err();
        assert!(matches!(&error, ArchError::OutOfRange { .. }), "{key}: {error}");
        let message = error.to_string();
        assert!(message.contains("config.json") && message.contains(key), "{message}");
    }
}

#[test]
fn wrong_types_name_key_and_value() {
    for (key, value) in [
        ("hidden_size", json!("64")),
        ("hidden_size", json!(64.5)),
        ("vocab_size", json!([320])),
        ("num_hidden_layers", json!({ "a": 1 })),
        ("rms_norm_eps", json!(true)),
        ("attention_bias", json!("true")),
        ("tie_word_embeddings", json!(1)),
        ("hidden_act", json!(3)),
        ("rope_scaling", json!("linear")),
        ("rope_scaling", json!([1, 2])),
        ("layer_types", json!("full_attention")),
        ("eos_token_id", json!("</s>")),
        ("eos_token_id", json!([[1]])),
        ("text_config", json!([])),
        ("quantization_config", json!(4)),
        ("torch_dtype", json!({})),
    ] {
        let error = parse("MistralForCausalLM", json!({ key: value })).unwrap_err();
        assert!(matches!(&error, ArchError::WrongType { .. }), "{key}: {error}");
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn missing_keys_are_named_with_their_alternatives() {
    for (key, tried) in [
        ("hidden_size", "`hidden_size` or `d_model` or `n_embd`"),
        ("num_hidden_layers", "`num_hidden_layers` or `n_layers` or `n_layer`"),
        ("num_attention_heads", "`num_attention_heads` or `n_heads` or `n_head`"),
        ("vocab_size", "`vocab_size`"),
        ("intermediate_size", "`intermediate_size`"),
        ("rms_norm_eps", "`rms_norm_eps`"),
        ("architectures", "`architectures`"),
    ] {
        let error = parse("LlamaForCausalLM", json!({ key: null })).unwrap_err();
        assert!(matches!(&error, ArchError::MissingKey { .. }), "{error}");
        assert!(error.to_string().contains(tried), "{error}");
    }
}

#[test]
fn contradictions_are_refused() {
    for (changes, part) in [
        (json!({ "num_key_value_heads": 3 }), "not a multiple of `num_key_value_heads` (3)"),
        (json!({ "hidden_size": 66 }), "`hidden_size` (66) is not a multiple"),
        (json!({ "hidden_size": 60, "num_attention_heads": 4 }), "must be even"),
        (json!({ "num_attention_heads": 32, "partial_rotary_factor": 0.1 }), "rotates 0 elements"),
        (
            json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 }, "head_dim": 2 }),
            "width above 2",
        ),
        (
            json!({ "rope_scaling": { "type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4 } }),
            "must be larger than `rope_scaling.low_freq_factor` (4)",
        ),
        (
            json!({ "rope_scaling": { "type": "su", "short_factor": [1.0], "long_factor": vec![1.0; 8] } }),
            "`rope_scaling.short_factor` has 1 entries for 8 rotated pairs",
        ),
        (json!({ "eos_token_id": vec![1; 1000] }), "lists 1000 ids"),
    ] {
        let error = parse("LlamaForCausalLM", changes).unwrap_err();
        assert!(matches!(&error, ArchError::Inconsistent { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn architectures_must_be_one_string() {
    for value in [json!([]), json!(["A", "B"]), json!("LlamaForCausalLM"), json!([1]), json!({})] {
        let error = parse("", json!({ "architectures": value })).unwrap_err();
        assert!(matches!(error, ArchError::Architectures { .. }), "{error}");
    }
}

#[test]
fn junk_is_not_json() {
    let deep = "[".repeat(100_000);
    let deep_objects = r#"{"a":"#.repeat(100_000);
    for text in
        ["", "null", "[]", "{", "\u{0}", "NaN", r#"{"hidden_size": 1e999}"#, &deep, &deep_objects]
    {
        let error = spec_from_json(text.as_bytes(), None, &SpecOptions::default()).unwrap_err();
        let is_expected = matches!(error, ArchError::Json { .. } | ArchError::WrongType { .. });
        assert!(is_expected, "{error}");
        assert!(error.to_string().contains("config.json"), "{error}");
    }
    let config = config("LlamaForCausalLM", json!({})).to_string();
    let error = spec_from_json(config.as_bytes(), Some(b"{"), &SpecOptions::default()).unwrap_err();
    assert!(error.to_string().contains("generation_config.json"), "{error}");
}

#[test]
fn of_duplicate_keys_the_last_wins_as_in_python() {
    let config = config("LlamaForCausalLM", json!({})).to_string();
    let doubled = config.replacen('{', r#"{"vocab_size": 7,"#, 1);
    let spec = spec_from_json(doubled.as_bytes(), None, &SpecOptions::default()).unwrap();
    assert_eq!(spec.vocab, 320);
}

#[test]
fn files_beyond_the_size_limit_are_refused_unread() {
    let big = vec![b' '; (4 << 20) + 1];
    let error = spec_from_json(&big, None, &SpecOptions::default()).unwrap_err();
    assert!(matches!(error, ArchError::TooLarge { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), &big).unwrap();
    let error = load_spec(dir.path(), &SpecOptions::default()).unwrap_err();
    assert!(matches!(error, ArchError::TooLarge { .. }), "{error}");
}

#[test]
fn a_directory_without_a_config_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = load_spec(dir.path(), &SpecOptions::default()).unwrap_err();
    assert!(
        matches!(&error, ArchError::Read { path, .. } if path.starts_with(dir.path())),
        "{error}"
    );
}

#[test]
fn load_spec_reads_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = config("LlamaForCausalLM", json!({ "eos_token_id": 1 })).to_string();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let eos = |options| load_spec(dir.path(), &options).unwrap().tokens.eos;
    assert_eq!(eos(SpecOptions::default()), [1]);
    std::fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": [2]}"#).unwrap();
    assert_eq!(eos(SpecOptions::default()), [2, 1]);
}

#[test]
fn long_text_from_a_file_is_shortened_and_escaped() {
    let error = parse(&"\u{1b}[31m\n".repeat(100_000), json!({})).unwrap_err().to_string();
    assert!(error.len() < 1000 && !error.contains('\u{1b}') && !error.contains('\n'), "{error}");
    let error = parse("LlamaForCausalLM", json!({ "hidden_act": "é".repeat(5000) })).unwrap_err();
    assert!(error.to_string().len() < 1000);
}

#[test]
fn a_context_option_out_of_range_is_refused() {
    let config = config("LlamaForCausalLM", json!({})).to_string();
    for context in [0, usize::MAX] {
        let options = SpecOptions { context: Some(context), ..SpecOptions::default() };
        let error = spec_from_json(config.as_bytes(), None, &options).unwrap_err();
        assert!(matches!(error, ArchError::BadOption { option: "context", .. }), "{error}");
    }
}

/// Keys whose mutation reaches every reader in the crate.
const KEYS: &[&str] = &[
    "architectures",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "num_key_value_heads",
    "intermediate_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "layer_types",
    "eos_token_id",
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
    "hidden_act",
    "attention_bias",
    "tie_word_embeddings",
    "quantization_config",
    "text_config",
    "scale_depth",
    "attn_config",
];

fn any_value() -> impl Strategy<Value = Value> {
    let kinds =
        ["linear", "dynamic", "yarn", "llama3", "longrope", "default", "full_attention", "silu"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0i64..200).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0.0..4.0).prop_map(Value::from),
        prop::sample::select(kinds.to_vec()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::collection::vec(0.5f64..3.0, 8).prop_map(Value::from),
    ];
    let names = [
        "type",
        "rope_type",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "short_factor",
        "long_factor",
        "beta_fast",
        "mscale",
        "attention_factor",
        "truncate",
        "full_attention",
        "sliding_attention",
        "original_max_position_embeddings",
        "hidden_size",
        "bits",
        "rope_theta",
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(names.to_vec()), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn any_override() -> impl Strategy<Value = Option<RopeOverride>> {
    let number = prop_oneof![any::<f32>(), 1f32..100.0];
    prop_oneof![
        3 => Just(None),
        1 => number.clone().prop_map(|factor| Some(RopeOverride::Linear(factor))),
        1 => number.clone().prop_map(|alpha| Some(RopeOverride::NtkAlpha(alpha))),
        1 => number.prop_map(|factor| Some(RopeOverride::Yarn(factor))),
    ]
}

fn check_invariants(spec: &ModelSpec) -> Result<(), TestCaseError> {
    for layer in &spec.layers {
        prop_assert!(layer.attn.heads.is_multiple_of(layer.attn.kv_heads));
        prop_assert!(layer.attn.rope.is_none_or(|rope| rope < spec.ropes.len()));
        prop_assert!(layer.attn.window.is_none_or(|window| window > 0));
        prop_assert!(layer.attn.scale.is_finite() && layer.branch_scale.is_finite());
    }
    for rope in &spec.ropes {
        prop_assert_eq!(rope.inv_freq.len() * 2, rope.rotary_dim);
        prop_assert!(rope.inv_freq.iter().all(|f| f.is_finite() && *f > 0.0), "{:?}", rope);
        prop_assert!(rope.attention_factor.is_finite() && rope.attention_factor > 0.0);
    }
    prop_assert!(spec.params() > 0 && spec.kv_elements_per_token() > 0 && spec.context > 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is accepted keeps the invariants of the spec.
    #[test]
    fn mutated_configs_give_a_sound_spec_or_an_error(
        family in 0..families().len(),
        changes in prop::collection::vec((prop::sample::select(KEYS), any_value()), 0..4),
        context in prop::option::of(0usize..1 << 26),
        rope in any_override(),
    ) {
        let architecture = families()[family].architectures[0];
        let changes = changes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let config = config(architecture, Value::Object(changes)).to_string();
        let options = SpecOptions { context, rope, ..SpecOptions::default() };
        if let Ok(spec) = spec_from_json(config.as_bytes(), None, &options) {
            check_invariants(&spec)?;
        }
    }

    /// Bytes changed anywhere in a real file.
    #[test]
    fn corrupted_bytes_never_panic(edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let scaling = json!({ "type": "yarn", "factor": 4.0, "beta_fast": 32, "mscale": 1.0 });
        let changes = json!({ "rope_scaling": scaling, "eos_token_id": [1, 2], "sliding_window": 64 });
        let mut bytes = config("MistralForCausalLM", changes).to_string().into_bytes();
        for (at, byte) in edits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let _ = spec_from_json(&bytes, Some(&bytes), &SpecOptions::default());
    }
}
