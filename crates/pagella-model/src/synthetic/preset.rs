//! Shapes of well-known models, as the part of their config that decides sizes.

use pagella_arch::{ModelSpec, SpecOptions, spec_from_json};

use crate::error::ModelError;

/// A named shape: its config, or what the engine lacks for it.
struct Preset {
    name: &'static str,
    config: Result<&'static str, &'static str>,
}

const PRESETS: &[Preset] = &[
    Preset { name: "anchor-1b", config: Ok(ANCHOR_1B) },
    Preset { name: "llama-3.2-1b", config: Ok(LLAMA_3_2_1B) },
    Preset { name: "llama-3.1-8b", config: Ok(LLAMA_3_1_8B) },
    Preset { name: "qwen2.5-32b", config: Ok(QWEN2_5_32B) },
    Preset { name: "llama-3.1-70b", config: Ok(LLAMA_3_1_70B) },
    Preset { name: "mixtral-8x7b", config: Err(EXPERTS) },
    Preset { name: "qwen3-30b-a3b", config: Err(EXPERTS) },
];

const EXPERTS: &str = "mixture-of-experts layers";

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

/// Every known name, those that cannot be built yet included.
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
    let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known = preset_names().collect::<Vec<_>>().join(", ");
        ModelError::UnknownPreset { name: name.chars().take(80).collect(), known }
    })?;
    let config = preset.config;
    let config =
        config.map_err(|missing| ModelError::UnsupportedPreset { name: preset.name, missing })?;
    Ok(spec_from_json(config.as_bytes(), None, &SpecOptions::default())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_the_size_of_its_name() {
        for (name, giga_params) in [
            ("anchor-1b", 0.99),
            ("llama-3.2-1b", 1.24),
            ("llama-3.1-8b", 8.03),
            ("qwen2.5-32b", 32.76),
            ("llama-3.1-70b", 70.55),
        ] {
            let params = preset_spec(name).unwrap().params() as f64 / 1e9;
            assert!((params - giga_params).abs() < 0.01, "{name}: {params}");
        }
    }

    #[test]
    fn models_with_experts_are_known_and_refused() {
        for name in preset_names() {
            match preset_spec(name) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.code(), "unsupported_preset");
                    assert!(error.to_string().contains("mixture-of-experts"), "{error}");
                }
            }
        }
        let error = preset_spec("gpt-5").unwrap_err();
        assert!(error.to_string().contains("llama-3.1-8b"), "{error}");
    }
}
