//! Latent attention: weights stored any way, tensors that are left alone, memory, and what is refused.

use std::path::Path;

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_cpu::MathMode;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_formats::synthetic::{RowOrder, exl2, gptq, plain_f16};
use pagella_formats::{Dtype, OwnedLinear};
use pagella_model::{LoadOptions, predict_memory};

use crate::cpu::cpu;
use crate::directory::{Tensor, all_logits_in, load};
use crate::families::case;
use crate::reference::ReferenceBackend;

/// A DeepSeek V3 whose linears can be quantised: two groups of experts, the first layer dense.
const CONFIG: &str = r#"{"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 160,
    "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64, "v_head_dim": 32, "intermediate_size": 256,
    "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1024}"#;

/// Makes a linear of so many inputs and outputs from a seed.
type Make = fn(usize, usize, u64) -> OwnedLinear;

/// How the linears of layers are stored.
const KINDS: [(&str, Make); 3] = [
    ("exl2", |inputs, outputs, seed| exl2(inputs, outputs, &[(6, 0.25, 32), (4, 0.75, 32)], seed)),
    ("gptq", |inputs, outputs, seed| gptq(inputs, outputs, 32, RowOrder::Shuffled, seed)),
    ("f16", plain_f16),
];

/// Writes [`CONFIG`] with random weights.
fn write(dir: &Path, make: Make) {
    std::fs::write(dir.join("config.json"), CONFIG).unwrap();
    let spec = load_spec(dir, &SpecOptions::default()).unwrap();
    let embedding = plain_f16(spec.hidden, spec.vocab, 1);
    let linears: Vec<(String, OwnedLinear)> = spec
        .linear_specs()
        .enumerate()
        .map(|(seed, (label, linear))| {
            let plain = label == "head" || label.ends_with("router");
            let make = if plain { plain_f16 } else { make };
            let (inputs, outputs) = (linear.in_features, linear.out_features);
            (linear.bases[0].clone(), make(inputs, outputs, seed as u64))
        })
        .collect();
    let ones = 1.0f32.to_le_bytes().repeat(spec.hidden);
    let f32s = |name: String, width: usize| TensorData {
        name,
        dtype: Dtype::F32,
        shape: vec![width],
        data: &ones[..4 * width],
    };
    let norms = spec.norm_specs().map(|(_, norm)| (&norm.bases[0], norm.width));
    let mut tensors: Vec<TensorData<'_>> =
        norms.map(|(base, width)| f32s(format!("{base}.weight"), width)).collect();
    tensors.extend(spec.vector_specs().map(|(_, base, len)| f32s(base.to_owned(), len)));
    tensors.extend(embedding.named(&spec.embed.name));
    tensors.extend(linears.iter().flat_map(|(base, linear)| linear.named(base)));
    write_file(&dir.join("model.safetensors"), &tensors).unwrap();
}

#[test]
fn what_unfolds_latent_vectors_may_be_stored_any_way() {
    let ids: Vec<u32> = (0..30u32).map(|i| i * 37 % 160).collect();
    for (name, make) in KINDS {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), make);
        let mut reference = load(dir.path(), ReferenceBackend, 64).unwrap();
        let wanted = all_logits_in(KvFormat::F32, &mut reference, &ids, 64);
        let mut model = load(dir.path(), cpu(MathMode::Exact, 2), 64).unwrap();
        let found = all_logits_in(KvFormat::F32, &mut model, &ids, 64);
        let largest = wanted.iter().fold(0.0f32, |top, x| top.max(x.abs()));
        let error = found.iter().zip(&wanted).fold(0.0f32, |top, (a, b)| top.max((a - b).abs()));
        assert!(error <= 1e-4 * largest, "{name}: {error:.1e} of {largest:.1e}");
    }
}

#[test]
fn memory_counts_what_is_dequantised_and_the_cache_holds_entries_alone() {
    for (name, make) in KINDS {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), make);
        let model = load(dir.path(), cpu(MathMode::Exact, 1), 64).unwrap();
        let options = LoadOptions { step_tokens_max: 64, ..LoadOptions::default() };
        let predicted = predict_memory(dir.path(), model.spec(), &options).unwrap();
        let (expected, found) = (predicted.report.weights_bytes, model.memory().weights_bytes);
        // Layouts pad a little; what is dequantised would be 4 to 8 times as much.
        let off = expected.abs_diff(found) as f64 / found as f64;
        assert!(off < 0.05, "{name}: {expected} predicted, {found} held");
        let per_token = |format| predicted.kv_bytes_per_token(format);
        assert_eq!(per_token(KvFormat::F16), 2 * 2 * (64 + 64));
        assert_eq!(per_token(KvFormat::Q8), 2 * (128 + 2 * 128 / 32));
        assert_eq!(per_token(KvFormat::K8V4), per_token(KvFormat::Q8));
        assert_eq!(model.spec().kv_elements_per_token(), 2 * 128);
    }
}

#[test]
fn layers_that_predict_further_tokens_are_left_alone() {
    let mut case = case("deepseekv3-groups-yarn");
    assert!(case.spec.notes.iter().any(|note| note.contains("num_nextn_predict_layers")));
    let wanted = case.run(cpu(MathMode::Exact, 2));
    let last = case.spec.layers.len();
    for name in ["eh_proj", "enorm", "self_attn.q_a_proj", "mlp.experts.0.up_proj"] {
        let name = format!("model.layers.{last}.{name}.weight");
        case.tensors.push(Tensor::filled(&name, &[7, 5], f32::NAN));
    }
    assert!(case.run(cpu(MathMode::Exact, 2)) == wanted);
}
