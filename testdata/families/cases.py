"""Small random models, at least three per family, each varying what its family may vary.

A value is the config.json of the case. `CONTEXT` holds the cases that need another context than the
config's own, because transformers resolves their rotary scaling from the length of the text.
"""

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 160,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float16",
}
MISTRAL = LLAMA | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "rope_theta": 1000000.0,
    "sliding_window": None,
}
QWEN2 = LLAMA | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "sliding_window": 512,
    "max_window_layers": 3,
}
QWEN3 = QWEN2 | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 32,
    "num_attention_heads": 4,
    "attention_bias": False,
}
MIXTRAL = MISTRAL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
}
QWEN3_MOE = QWEN3 | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 160,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 32,
    "sliding_window": 8,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}
PHI3 = LLAMA | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "original_max_position_embeddings": 512,
    "sliding_window": None,
    "pad_token_id": 0,
}

# Divisors per rotated pair, as longrope models have them: small for fast pairs, large for slow ones.
SHORT_12 = [1.0 + 0.05 * i for i in range(12)]
LONG_12 = [1.0 + 0.4 * i for i in range(12)]
SHORT_16 = [1.0 + 0.03 * i for i in range(16)]
LONG_16 = [1.1 + 0.5 * i for i in range(16)]

CASES = {
    "llama-gqa": LLAMA,
    "llama-biases-tied": LLAMA
    | {
        "hidden_size": 160,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "llama-llama3-mqa": LLAMA
    | {
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama-linear": LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama-dynamic": LLAMA
    | {"max_position_embeddings": 40, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama-yarn": {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    | {
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        },
    },
    "mistral-full": MISTRAL | {"head_dim": 32, "num_attention_heads": 4},
    "mistral-window": MISTRAL | {"sliding_window": 8, "hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 1},
    "mistral-window-tied": MISTRAL | {"sliding_window": 33, "tie_word_embeddings": True},
    "qwen2-tied": QWEN2 | {"tie_word_embeddings": True},
    "qwen2-window": QWEN2 | {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    "qwen2-yarn": QWEN2
    | {
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "qwen3-gqa-tied": QWEN3 | {"tie_word_embeddings": True},
    "qwen3-window-biases": QWEN3
    | {
        "attention_bias": True,
        "hidden_size": 160,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "use_sliding_window": True,
        "sliding_window": 16,
        "max_window_layers": 28,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3-mqa-yarn": QWEN3
    | {
        "num_key_value_heads": 1,
        "rope_scaling": {
            "rope_type": "yarn",
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
    "mixtral-gqa": MIXTRAL,
    "mixtral-window-top3": MIXTRAL
    | {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 8, "num_hidden_layers": 2},
    "qwen3moe-gqa": QWEN3_MOE | {"num_hidden_layers": 2},
    # Weights that do not sum to one; layers 0 and 2 are dense by the step, layer 3 by the list.
    "qwen3moe-dense-layers-window": QWEN3_MOE
    | {
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "num_hidden_layers": 4,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "use_sliding_window": True,
        "sliding_window": 12,
        "num_key_value_heads": 4,
    },
    "gemma2-gqa": GEMMA2,
    "gemma2-caps-bite": GEMMA2
    | {
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "query_pre_attn_scalar": 24,
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "attention_bias": True,
    },
    "gemma2-uncapped-layer-types": GEMMA2
    | {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "num_key_value_heads": 1,
        "tie_word_embeddings": False,
        "sliding_window": 5,
        "layer_types": [
            "full_attention",
            "sliding_attention",
            "sliding_attention",
            "full_attention",
        ],
    },
    "phi3-mha": PHI3,
    "phi3-window-partial": PHI3
    | {
        "hidden_size": 160,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "sliding_window": 20,
        "partial_rotary_factor": 0.75,
        "tie_word_embeddings": True,
    },
    "phi3-longrope-long-partial": PHI3
    | {
        "partial_rotary_factor": 0.75,
        "max_position_embeddings": 512,
        "original_max_position_embeddings": 32,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT_12, "long_factor": LONG_12},
    },
    "phi3-longrope-short": PHI3
    | {
        "max_position_embeddings": 2048,
        "original_max_position_embeddings": 128,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT_16, "long_factor": LONG_16},
    },
}

# Context to load the case with, where it is not the config's own.
CONTEXT = {"llama-dynamic": 64, "phi3-longrope-short": 128}
