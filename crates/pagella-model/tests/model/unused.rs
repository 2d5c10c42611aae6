//! Tensors that no part of a model takes: refused by name, unless published files are known to have them.

use std::ops::ControlFlow;
use std::path::Path;

use pagella_arch::{Extra, SpecOptions, load_spec};
use pagella_cpu::MathMode;
use pagella_formats::Dtype;
use pagella_model::{LoadOptions, Model, ModelError, Survey};

use crate::cpu::cpu;
use crate::directory::{Tensor, demo, shared};
use crate::families::{Case, case, cases};

/// Loads a case whose config was changed.
fn load(case: &Case, ignore_unused_tensors: bool) -> Result<(), ModelError> {
    let dir = tempfile::tempdir().unwrap();
    case.write(dir.path());
    let spec = load_spec(dir.path(), &SpecOptions::default()).unwrap();
    let options = LoadOptions { ignore_unused_tensors, ..LoadOptions::default() };
    let backend = cpu(MathMode::Exact, 1);
    Model::load(dir.path(), spec, backend, &options, &mut |_| ControlFlow::Continue(())).map(drop)
}

/// Loading fails and names `tensor`; the switch loads it all the same.
fn refused(case: &Case, tensor: &str, total: usize) {
    let error = load(case, false).unwrap_err();
    assert_eq!(error.code(), "unused_tensors", "{error}");
    let message = error.to_string();
    assert!(message.contains(tensor), "{message}");
    assert!(message.contains(&format!("{total} of its tensors")), "{message}");
    assert!(message.contains("--ignore-unused-tensors"), "{message}");
    load(case, true).unwrap();
}

#[test]
fn a_config_with_fewer_layers_than_the_files_is_refused() {
    let mut case = case("llama-gqa");
    case.config = case.config.replace(r#""num_hidden_layers": 3"#, r#""num_hidden_layers": 2"#);
    refused(&case, "model.layers.2.input_layernorm.weight", 9);
}

#[test]
fn weights_of_qwen3_called_llama_are_refused() {
    let mut case = case("qwen3-gqa-tied");
    case.config = case.config.replace("Qwen3ForCausalLM", "LlamaForCausalLM");
    refused(&case, "model.layers.0.self_attn.k_norm.weight", 6);
}

#[test]
fn weights_of_a_model_with_post_norms_called_llama_are_refused() {
    let mut case = case("gemma2-gqa");
    case.config = case.config.replace("Gemma2ForCausalLM", "GemmaForCausalLM");
    refused(&case, "model.layers.0.post_feedforward_layernorm.weight", 8);
}

#[test]
fn a_second_set_of_weights_for_one_linear_is_refused() {
    let mut case = case("phi3-mha");
    case.tensors.push(Tensor::filled("model.layers.0.self_attn.q_proj.weight", &[96, 96], 0.0));
    refused(&case, "model.layers.0.self_attn.q_proj.weight", 1);
}

#[test]
fn what_published_checkpoints_hold_besides_is_let_through_and_told() {
    for (name, extras) in [
        (
            "llama-gqa",
            &["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"][..],
        ),
        ("gpt2-mha", &["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"]),
        ("gpt2-bare-narrow", &["h.0.attn.bias", "h.0.attn.masked_bias"]),
        (
            "pixtral-old-names",
            &["vision_tower.ln_pre.weight", "multi_modal_projector.linear_1.bias"],
        ),
        ("qwen2vl-new-names-tied", &["model.visual.patch_embed.proj.weight"]),
        ("qwen2vl-old-names", &["visual.patch_embed.proj.weight"]),
        (
            "erniemoe-shared",
            &["model.mtp_block.0.mlp.up_proj.weight", "model.mtp_emb_norm.0.weight"],
        ),
        (
            "glm4moe-one-group",
            &["model.layers.3.eh_proj.weight", "model.layers.3.shared_head.norm.weight"],
        ),
        ("mistral-full", &["layers.0.attention.wq.weight", "tok_embeddings.weight"]),
        ("qwen3-gqa-tied", &["model.layers.0.self_attn.k_proj.k_scale"]),
    ] {
        let mut case = case(name);
        for extra in extras {
            case.tensors.push(Tensor::filled(extra, &[160], 0.0));
        }
        load(&case, false).unwrap_or_else(|error| panic!("{name}: {error}"));
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path());
        let unused = Survey::of(dir.path(), &case.spec).unwrap().unused;
        let told: usize = unused.iter().map(|unused| unused.names.len()).sum();
        assert_eq!(told, extras.len(), "{name}: {unused:?}");
    }
}

#[test]
fn biases_of_zeros_that_quantisers_write_belong_to_their_linears() {
    let mut case = case("llama-gqa");
    for part in ["self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"] {
        let width = if part.ends_with("k_proj") { 32 } else { 96 };
        let name = format!("model.layers.1.{part}.bias");
        case.tensors.push(Tensor::filled(&name, &[width], 0.0));
    }
    load(&case, false).unwrap();
}

#[test]
fn no_case_of_any_family_has_a_tensor_that_nothing_takes() {
    for case in cases() {
        let dir = tempfile::tempdir().unwrap();
        case.write(dir.path());
        let survey = Survey::of(dir.path(), &case.spec).unwrap();
        assert!(survey.unused.is_empty(), "{}: {:?}", case.name, survey.unused);
    }
}

#[test]
fn real_models_have_no_tensor_that_nothing_takes() {
    let mut dirs = vec![demo()];
    if let Some(models) = shared("models") {
        dirs.extend(std::fs::read_dir(models).unwrap().map(|entry| entry.unwrap().path()));
    }
    let is_read = |dir: &&std::path::PathBuf| !dir.display().to_string().contains("exl3");
    for dir in dirs.iter().filter(is_read) {
        assert_eq!(own(dir), 0, "{}", dir.display());
    }
}

fn own(dir: &Path) -> usize {
    let spec = load_spec(dir, &SpecOptions::default()).unwrap();
    let unused = Survey::of(dir, &spec).unwrap().unused;
    unused.iter().filter(|unused| unused.kind == Extra::Own).map(|unused| unused.names.len()).sum()
}

#[test]
fn a_quantised_linear_takes_all_of_its_tensors_and_nothing_else() {
    let mut case = case("llama-gqa");
    let mut extra = Tensor::filled("model.layers.0.mlp.up_proj.g_idx", &[96], 0.0);
    extra.dtype = Dtype::I32;
    case.tensors.push(extra);
    refused(&case, "model.layers.0.mlp.up_proj.g_idx", 1);
}
