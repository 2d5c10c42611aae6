//! Bad model directories: one clear sentence each, before any weight is laid out.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;

use pagella_arch::{BlockOrder, ModelSpec};
use pagella_formats::Dtype;
use pagella_model::{LoadOptions, Model, ModelError, predict_memory};

use crate::directory::Tensor;
use crate::families::{Case, case};
use crate::reference::ReferenceBackend;

/// What loading says; the load must fail before the first module is announced.
fn error(case: &Case) -> ModelError {
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    error_of(dir.path(), &case.spec)
}

fn error_of(dir: &Path, spec: &ModelSpec) -> ModelError {
    let announced = Cell::new(0);
    let backend = ReferenceBackend;
    let options = LoadOptions::default();
    let loaded = Model::load(dir, spec.clone(), backend, &options, &mut |_| {
        announced.set(announced.get() + 1);
        ControlFlow::Continue(())
    });
    assert_eq!(announced.get(), 0, "loading began before everything was checked");
    let error = loaded.map(drop).expect_err("a bad directory");
    let predicted = predict_memory(dir, spec, &options).expect_err("a bad directory");
    assert_eq!(error.to_string(), predicted.to_string(), "prediction and loading disagree");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

/// Fails unless the error has the code and its message all the words.
fn expect(case: &Case, code: &str, words: &[&str]) {
    let error = error(case);
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

fn tensor<'c>(case: &'c mut Case, name: &str) -> &'c mut Tensor {
    case.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn every_missing_tensor_is_listed() {
    let mut case = case("llama-gqa");
    let gone = ["model.layers.1.mlp.up_proj", "model.layers.2.input_layernorm", "model.norm"];
    case.tensors.retain(|tensor| !gone.iter().any(|base| tensor.name == format!("{base}.weight")));
    expect(&case, "missing_tensors", &["3 tensors", gone[0], gone[1], gone[2], "incomplete"]);
}

#[test]
fn a_long_list_of_missing_tensors_is_cut_at_twenty() {
    let mut case = case("llama-gqa");
    case.tensors.retain(|tensor| tensor.name == "model.embed_tokens.weight");
    let ModelError::MissingTensors { missing, total, .. } = error(&case) else {
        panic!("another error");
    };
    assert_eq!(missing.len(), 20);
    assert_eq!(total, 3 * 9 + 2);
}

#[test]
fn a_missing_embedding_or_untied_head_is_named() {
    let mut case = case("llama-gqa");
    case.tensors.retain(|t| t.name != "model.embed_tokens.weight" && t.name != "lm_head.weight");
    expect(&case, "missing_tensors", &["model.embed_tokens", "lm_head"]);
}

#[test]
fn a_wrong_shape_names_tensor_and_both_shapes() {
    let mut case = case("llama-gqa");
    tensor(&mut case, "model.layers.1.mlp.down_proj.weight").shape = vec![160, 96];
    let words = ["model.layers.1.mlp.down_proj.weight", "[160, 96]", "[96, 160]"];
    expect(&case, "wrong_shape", &words);
}

#[test]
fn a_wrong_norm_shape_names_tensor_and_both_shapes() {
    let mut case = case("qwen3-gqa-tied");
    let width = case.spec.layers[0].attn.head_dim;
    *tensor(&mut case, "model.layers.0.self_attn.k_norm.weight") =
        Tensor::filled("model.layers.0.self_attn.k_norm.weight", &[width + 1], 1.0);
    expect(&case, "wrong_shape", &["k_norm.weight", &format!("[{width}]")]);
}

#[test]
fn a_vocabulary_of_another_model_is_noticed() {
    let mut case = case("llama-gqa");
    *tensor(&mut case, "model.embed_tokens.weight") =
        Tensor::filled("model.embed_tokens.weight", &[168, 96], 0.5);
    expect(&case, "vocab_mismatch", &["model.embed_tokens.weight", "168", "160"]);
}

#[test]
fn a_wrong_embedding_width_is_a_wrong_shape() {
    let mut case = case("llama-gqa");
    *tensor(&mut case, "model.embed_tokens.weight") =
        Tensor::filled("model.embed_tokens.weight", &[160, 95], 0.5);
    expect(&case, "wrong_shape", &["model.embed_tokens.weight", "[160, 95]", "96"]);
}

#[test]
fn element_types_that_no_weight_has_are_refused() {
    for name in
        ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight"]
    {
        let mut case = case("llama-gqa");
        tensor(&mut case, name).dtype = Dtype::I32;
        expect(&case, "wrong_dtype", &[name, "I32", "F16, BF16 or F32"]);
    }
}

#[test]
fn an_unexpected_bias_is_refused_and_a_zero_one_ignored() {
    let name = "model.layers.0.mlp.gate_proj.bias";
    let mut case = case("llama-gqa");
    case.tensors.push(Tensor::filled(name, &[160], 0.25));
    expect(&case, "unexpected_bias", &[name]);
    *case.tensors.last_mut().unwrap() = Tensor::filled(name, &[160], 0.0);
    assert!(case.difference(&case.run(ReferenceBackend)) < 1e-3);
}

#[test]
fn a_missing_bias_is_named() {
    let name = "model.layers.1.self_attn.v_proj.bias";
    let mut case = case("qwen2-tied");
    case.tensors.retain(|tensor| tensor.name != name);
    expect(&case, "missing_tensor", &[name]);
}

#[test]
fn an_rms_norm_with_a_bias_is_refused() {
    let name = "model.layers.0.input_layernorm.bias";
    let mut case = case("llama-gqa");
    case.tensors.push(Tensor::filled(name, &[96], 0.25));
    expect(&case, "unexpected_norm_bias", &[name]);
}

#[test]
fn too_few_learned_positions_say_what_to_lower() {
    let mut case = case("llama-gqa");
    case.spec.embed.positions = Some("model.embed_positions".to_owned());
    case.tensors.push(Tensor::filled("model.embed_positions.weight", &[100, 96], 0.0));
    expect(&case, "too_few_positions", &["model.embed_positions.weight", "100", "512"]);
}

#[test]
fn blocks_that_the_pass_does_not_have_are_refused_before_any_file_is_opened() {
    let mut parallel = case("mixtral-gqa").spec;
    parallel.layers[1].order = BlockOrder::Parallel;
    let mut post_normed = case("mixtral-gqa").spec;
    post_normed.layers[2].mlp_post_norm = post_normed.layers[2].mlp_pre_norm.clone();
    for (spec, words) in [
        (parallel, "layer 1: parallel mixture-of-experts layers are not supported yet"),
        (post_normed, "layer 2: post-normed mixture-of-experts layers are not supported yet"),
    ] {
        let error = error_of(Path::new("no/such/directory"), &spec);
        assert_eq!(error.code(), "unsupported_block");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn every_expert_is_checked() {
    let mut incomplete = case("mixtral-gqa");
    let gone = [
        "model.layers.1.block_sparse_moe.gate",
        "model.layers.1.block_sparse_moe.experts.5.w2",
        "model.layers.2.block_sparse_moe.experts.0.w3",
    ];
    incomplete.tensors.retain(|t| !gone.iter().any(|base| t.name == format!("{base}.weight")));
    expect(&incomplete, "missing_tensors", &["3 tensors", gone[0], gone[1], gone[2]]);
    let name = "model.layers.2.block_sparse_moe.experts.5.w2.weight";
    let mut flipped = case("mixtral-gqa");
    tensor(&mut flipped, name).shape = vec![160, 96];
    expect(&flipped, "wrong_shape", &[name, "[160, 96]", "[96, 160]"]);
}

#[test]
fn formats_that_are_not_read_are_named() {
    let mut by_config = case("llama-gqa");
    let block = |json| serde_json::from_str(json).unwrap();
    by_config.spec.quant.block = Some(block(r#"{"quant_method": "hqq"}"#));
    expect(&by_config, "unsupported_format", &["HQQ"]);
    let mut by_width = case("llama-gqa");
    by_width.spec.quant.block = Some(block(r#"{"quant_method": "gptq", "bits": 5}"#));
    expect(&by_width, "unsupported_format", &["5-bit GPTQ"]);
    let mut elsewhere = case("llama-gqa");
    elsewhere.spec.quant.block = Some(block(r#"{"quant_method": "awq", "bits": 4}"#));
    expect(&elsewhere, "nothing_promised", &["says awq, but no linear is stored so"]);
    let mut by_tensor = case("llama-gqa");
    let weight = tensor(&mut by_tensor, "model.layers.0.mlp.up_proj.weight");
    weight.name = "model.layers.0.mlp.up_proj.W_q".to_owned();
    expect(&by_tensor, "unsupported_format", &["HQQ"]);
}

#[test]
fn directories_without_weights_say_what_is_missing() {
    let spec = case("llama-gqa").spec;
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(error_of(empty.path(), &spec).code(), "no_safetensors");
    assert_eq!(error_of(&empty.path().join("absent"), &spec).code(), "io");
    std::fs::write(empty.path().join("model.safetensors"), b"short").unwrap();
    assert_eq!(error_of(empty.path(), &spec).code(), "file_too_short");
}

#[test]
fn a_truncated_file_is_refused() {
    let case = case("llama-gqa");
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    assert_eq!(error_of(dir.path(), &case.spec).code(), "offsets_out_of_range");
}

#[test]
fn step_tokens_have_a_range() {
    let case = case("llama-gqa");
    for step_tokens_max in [0, usize::MAX] {
        let options = LoadOptions { step_tokens_max, ..LoadOptions::default() };
        let backend = ReferenceBackend;
        let loaded = Model::load(Path::new("."), case.spec.clone(), backend, &options, &mut |_| {
            ControlFlow::Continue(())
        });
        let error = loaded.map(drop).unwrap_err();
        assert_eq!(error.code(), "bad_option", "{error}");
    }
}

#[test]
fn tensors_that_nobody_asks_for_are_fine() {
    let mut case = case("llama-gqa");
    let mut odd = Tensor::filled("model.rotary_emb.inv_freq", &[8], 1.0);
    odd.dtype = Dtype::I32;
    case.tensors.push(odd);
    assert!(case.difference(&case.run(ReferenceBackend)) < 1e-3);
}
