//! Architectures that are known not to work, each with the block that is missing.
//!
//! Without this list they would only be unknown, and a user might try them as Llama.

/// Strings in `architectures`, and what they would need.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("Qwen3NextForCausalLM", GATED_DELTA),
    ("Qwen3_5ForCausalLM", GATED_DELTA),
    ("Qwen3_5MoeForCausalLM", GATED_DELTA),
    ("Qwen3_5ForConditionalGeneration", GATED_DELTA),
    ("Qwen3_5MoeForConditionalGeneration", GATED_DELTA),
    ("OlmoHybridForCausalLM", GATED_DELTA),
    ("KimiLinearForCausalLM", GATED_DELTA),
    ("MiniMaxForCausalLM", "linear attention with a recurrent state"),
    ("MiniMaxText01ForCausalLM", "linear attention with a recurrent state"),
    ("MambaForCausalLM", MAMBA),
    ("Mamba2ForCausalLM", MAMBA),
    ("FalconMambaForCausalLM", MAMBA),
    ("FalconH1ForCausalLM", MAMBA),
    ("JambaForCausalLM", MAMBA),
    ("BambaForCausalLM", MAMBA),
    ("ZambaForCausalLM", MAMBA),
    ("Zamba2ForCausalLM", MAMBA),
    ("NemotronHForCausalLM", MAMBA),
    ("Lfm2ForCausalLM", SHORT_CONV),
    ("Lfm2MoeForCausalLM", SHORT_CONV),
    ("RecurrentGemmaForCausalLM", "recurrent layers"),
    ("Gemma3nForConditionalGeneration", "alternating-update streams and per-layer embeddings"),
    ("Gemma3nForCausalLM", "alternating-update streams and per-layer embeddings"),
    ("Gemma4ForConditionalGeneration", "heads whose number and size differ between layers"),
    ("Gemma4ForCausalLM", "heads whose number and size differ between layers"),
    ("AfmoeForCausalLM", "gates of attention outputs"),
    ("ApertusForCausalLM", "the xIELU activation"),
    ("DeciLMForCausalLM", "layers of different shape (`block_configs`)"),
    ("DeepseekV32ForCausalLM", "an indexer of latent attention"),
    ("DeepseekV4ForCausalLM", "hyper-connections and compressed sparse attention"),
    ("LongcatFlashForCausalLM", "layers of two latent attentions and experts that do nothing"),
    ("MllamaForConditionalGeneration", "cross-attention layers"),
    ("NanoChatForCausalLM", "value embeddings and norms after rotation without weights"),
    ("Step3p5ForCausalLM", "heads whose number differs between layers"),
    ("RWKVForCausalLM", "recurrent layers"),
];

const GATED_DELTA: &str = "gated delta-net layers with a recurrent state";
const MAMBA: &str = "Mamba layers with a recurrent state";
const SHORT_CONV: &str = "short convolutions in place of attention";
