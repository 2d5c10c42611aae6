//! Models made in memory: every format, memory reports, refusals.

use std::ops::ControlFlow;

use pagella_arch::{ModelSpec, SpecOptions, spec_from_json};
use pagella_backend::KvFormat;
use pagella_formats::LinearKind;
use pagella_model::{LoadOptions, Model, ModelError, SyntheticWeights, synthetic};

use crate::directory::{all_logits, demo, load};
use crate::reference::ReferenceBackend;

const BACKEND: ReferenceBackend = ReferenceBackend;

/// A small Qwen2: it has biases.
fn spec(hidden: usize) -> ModelSpec {
    let config = format!(
        r#"{{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 320, "hidden_size": {hidden},
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 384, "rms_norm_eps": 1e-6, "max_position_embeddings": 512}}"#
    );
    spec_from_json(config.as_bytes(), None, &SpecOptions::default()).unwrap()
}

fn make(spec: ModelSpec, weights: SyntheticWeights) -> Result<Model<ReferenceBackend>, ModelError> {
    let options = LoadOptions { step_tokens_max: 8, ..LoadOptions::default() };
    Model::synthetic(spec, BACKEND, weights, &options, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn every_format_makes_a_model_that_runs() {
    for (weights, kind, head, bits) in [
        (
            SyntheticWeights::Exl2 { bits: 4.0, head_bits: 6 },
            LinearKind::Exl2,
            LinearKind::Exl2,
            4.2,
        ),
        (SyntheticWeights::Exl3 { bits: 3, head_bits: 6 }, LinearKind::Exl3, LinearKind::Exl3, 3.1),
        (SyntheticWeights::Gptq, LinearKind::Gptq, LinearKind::Plain, 4.16),
        (SyntheticWeights::F16, LinearKind::Plain, LinearKind::Plain, 16.0),
    ] {
        let mut model = make(spec(256), weights).unwrap();
        let memory = model.memory();
        let kinds: Vec<LinearKind> = memory.kinds.iter().map(|share| share.kind).collect();
        assert_eq!(kinds.first(), Some(&kind));
        assert_eq!(kinds.last(), Some(&head));
        assert_eq!(memory.kinds.iter().map(|share| share.count).sum::<usize>(), 2 * 7 + 1);
        let found = memory.layers.bits_per_weight();
        assert!((found - bits).abs() < 0.2, "{weights:?}: {found}");
        let logits = all_logits(&mut model, &[1, 2, 3], 8);
        assert!(logits.iter().all(|logit| logit.is_finite()), "{weights:?}");
        assert!(logits.iter().any(|logit| logit.abs() > 1e-3), "{weights:?}");
    }
}

#[test]
fn models_with_experts_can_be_made_in_every_format() {
    let config = r#"{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 320,
        "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 384, "moe_intermediate_size": 128,
        "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [1],
        "rms_norm_eps": 1e-6, "max_position_embeddings": 512}"#;
    for (weights, plain) in [
        (SyntheticWeights::Exl2 { bits: 4.0, head_bits: 6 }, 2),
        (SyntheticWeights::Exl3 { bits: 2, head_bits: 6 }, 2),
        (SyntheticWeights::Gptq, 3),
        (SyntheticWeights::F16, 2 * (4 + 1 + 8 * 3) + 7 + 1),
    ] {
        let spec = spec_from_json(config.as_bytes(), None, &SpecOptions::default()).unwrap();
        let mut model = make(spec, weights).unwrap();
        let kinds = model.memory().kinds;
        assert_eq!(kinds.iter().map(|share| share.count).sum::<usize>(), 2 * 29 + 7 + 1);
        let found = kinds.iter().find(|share| share.kind == LinearKind::Plain).unwrap();
        assert_eq!(found.count, plain, "{weights:?}: routers, and heads of GPTQ, are plain");
        let logits = all_logits(&mut model, &[1, 2, 3], 8);
        assert!(logits.iter().all(|logit| logit.is_finite()), "{weights:?}");
    }
}

#[test]
fn shapes_and_widths_outside_a_format_are_refused() {
    let code = |spec, weights| make(spec, weights).map(drop).unwrap_err().code();
    let exl2 = |bits, head_bits| SyntheticWeights::Exl2 { bits, head_bits };
    assert_eq!(code(spec(200), exl2(4.0, 6)), "synthetic_shape");
    assert_eq!(code(spec(192), SyntheticWeights::Gptq), "synthetic_shape");
    assert_eq!(code(spec(256), exl2(1.0, 6)), "bad_option");
    assert_eq!(code(spec(256), exl2(4.0, 7)), "bad_option");
}

#[test]
fn presets_give_the_caches_of_their_models() {
    let spec = synthetic::preset_spec("llama-3.1-8b").unwrap();
    assert_eq!(spec.kv_elements_per_token(), 2 * 32 * 8 * 128);
}

#[test]
fn the_demo_model_reports_what_its_files_hold() {
    let model = load(&demo(), BACKEND, 512).unwrap();
    let memory = model.memory();
    assert_eq!(memory.mapped_bytes, 4096 * 384 * 2);
    assert_eq!(memory.token_bytes, memory.weights_bytes, "a dense model reads all of them");
    let bits = memory.layers.bits_per_weight();
    assert!((5.9..6.2).contains(&bits), "{bits}");
    let head = memory.head.bits_per_weight();
    assert!((6.5..7.0).contains(&head), "{head}");
    assert_eq!(model.kv_spec(KvFormat::F16, 257).pages, 2);
    let options = LoadOptions::default();
    let predicted = pagella_model::predict_memory(&demo(), model.spec(), &options).unwrap();
    assert_eq!(predicted.report.layers, memory.layers);
    assert_eq!(predicted.report.head, memory.head);
    assert_eq!(predicted.report.kinds, memory.kinds);
    assert_eq!(predicted.report.mapped_bytes, memory.mapped_bytes);
    assert_eq!(predicted.report.scratch_bytes, memory.scratch_bytes);
    let kv = model.kv_spec(KvFormat::Q4, 4096).bytes() as u64;
    assert_eq!(predicted.kv_bytes(KvFormat::Q4, 4096), kv);
    let per_token = predicted.kv_bytes_per_token(KvFormat::Q4);
    assert_eq!(per_token * 4096, kv);
    let grown = predicted.peak_bytes(KvFormat::F16, 65_536);
    assert!(grown > predicted.peak_bytes(KvFormat::F16, 256) + 200_000_000, "caches count");
}

#[test]
fn rows_of_logits_take_what_was_predicted() {
    let mut model = load(&demo(), BACKEND, 512).unwrap();
    let predicted =
        pagella_model::predict_memory(&demo(), model.spec(), &LoadOptions::default()).unwrap();
    let before = model.memory().scratch_bytes;
    for rows in [1, 5, 8] {
        all_logits(&mut model, &[1, 2, 3, 4, 5, 6, 7, 8][..rows], 8);
        let taken = model.memory().scratch_bytes - before;
        assert_eq!(predicted.more_logits_bytes(rows), taken, "{rows} rows");
    }
}
