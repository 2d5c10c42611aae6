//! Shapes of well-known models, as the part of their config that decides sizes.

use pagella_arch::{ModelSpec, SpecOptions, spec_from_json};

use crate::error::ModelError;

/// A named shape.
struct Preset {
    name: &'static str,
    config: &'static str,
}

const PRESETS: &[Preset] = &[
    Preset { name: "anchor-1b", config: ANCHOR_1B },
    Preset { name: "llama-3.2-1b", config: LLAMA_3_2_1B },
    Preset { name: "llama-3.1-8b", config: LLAMA_3_1_8B },
    Preset { name: "qwen2.5-32b", config: QWEN2_5_32B },
    Preset { name: "llama-3.1-70b", config: LLAMA_3_1_70B },
    Preset { name: "mixtral-8x7b", config: MIXTRAL_8X7B },
    Preset { name: "qwen3-30b-a3b", config: QWEN3_30B_A3B },
    Preset { name: "deepseek-v2-lite", config: DEEPSEEK_V2_LITE },
];

/// The shape that speeds are compared with: 1 G weights, a small vocabulary.
const ANCHOR_1B: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 2048,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "intermediate_size": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "max_position_embeddings": 32768
}"#;

const LLAMA_3_2_1B: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "intermediate_size": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "max_position_embeddings": 131072, "tie_word_embeddings": true,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
}"#;

const LLAMA_3_1_8B: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
}"#;

const QWEN2_5_32B: &str = r#"{
    "architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064, "hidden_size": 5120,
    "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
    "intermediate_size": 27648, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "max_position_embeddings": 32768, "use_sliding_window": false
}"#;

const LLAMA_3_1_70B: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 8192,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "intermediate_size": 28672, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
}"#;

const MIXTRAL_8X7B: &str = r#"{
    "architectures": ["MixtralForCausalLM"], "vocab_size": 32000, "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "max_position_embeddings": 32768,
    "sliding_window": null
}"#;

const DEEPSEEK_V2_LITE: &str = r#"{
    "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 2048,
    "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
    "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}
}"#;

const QWEN3_30B_A3B: &str = r#"{
    "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": true, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "max_position_embeddings": 40960, "use_sliding_window": false
}"#;

/// Every known name.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The spec of a named shape.
///
/// ```
/// let spec = pagella_model::synthetic::preset_spec("llama-3.1-8b")?;
/// assert_eq!(spec.layers.len(), 32);
/// # Ok::<(), pagella_model::ModelError>(())
/// ```
pub fn preset_spec(name: &str) -> Result<ModelSpec, ModelError> {
    Ok(spec_from_json(preset_config(name)?.as_bytes(), None, &SpecOptions::default())?)
}

/// The config of a named shape.
pub(super) fn preset_config(name: &str) -> Result<&'static str, ModelError> {
    let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known = preset_names().collect::<Vec<_>>().join(", ");
        ModelError::UnknownPreset { name: name.chars().take(80).collect(), known }
    })?;
    Ok(preset.config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_the_size_of_its_name() {
        let sizes = [
            ("anchor-1b", 0.99),
            ("llama-3.2-1b", 1.24),
            ("llama-3.1-8b", 8.03),
            ("qwen2.5-32b", 32.76),
            ("llama-3.1-70b", 70.55),
            ("mixtral-8x7b", 46.70),
            ("qwen3-30b-a3b", 30.53),
            ("deepseek-v2-lite", 15.71),
        ];
        assert!(preset_names().eq(sizes.iter().map(|(name, _)| *name)));
        for (name, giga_params) in sizes {
            let params = preset_spec(name).unwrap().params() as f64 / 1e9;
            assert!((params - giga_params).abs() < 0.01, "{name}: {params}");
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = preset_spec("gpt-5").unwrap_err();
        assert!(error.to_string().contains("llama-3.1-8b"), "{error}");
    }
}
