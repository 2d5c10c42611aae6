"""Small random models, at least three per family, each varying what its family may vary.

A value is the config.json of the case. `CONTEXT` holds the cases that need another context than the
config's own, because transformers resolves their rotary scaling from the length of the text.
"""

from bases import (
    ARCEE,
    BIASES,
    BIGCODE,
    COHERE,
    COHERE2,
    CWM,
    DBRX,
    DEEPSEEK_V2,
    DEEPSEEK_V2_LITE,
    DEEPSEEK_V3,
    DEEPSEEK_YARN,
    DOTS1,
    DYNAMIC,
    ERNIE,
    ERNIE_MOE,
    EXAONE4,
    FULL,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GEMMA3_VL,
    GEMMOE,
    GLM,
    GLM4,
    GLM4_MOE,
    GLM4_MOE_LITE,
    GPT2,
    GPT_OSS,
    GRANITE,
    GRANITE_HYBRID,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    HUNYUAN,
    HUNYUAN_MOE,
    INDEX,
    INTERNLM2,
    KIMI_K2,
    LINEAR,
    LLAMA,
    LLAMA3,
    LLAMA4,
    LONG_12,
    LONG_16,
    MHA,
    MINICPM,
    MINIMAX_M2,
    MINISTRAL,
    MINISTRAL3,
    MISTRAL,
    MISTRAL3,
    MISTRAL3_MINISTRAL3,
    MIXTRAL,
    MQA,
    ODD_LATENT,
    OLMO2,
    OLMO3,
    OLMOE,
    ORION,
    PHI3,
    PIXTRAL,
    QWEN2,
    QWEN25_VL,
    QWEN2_MOE,
    QWEN2_VL,
    QWEN3,
    QWEN3_MOE,
    QWEN3_VL,
    QWEN3_VL_MOE,
    SEED_OSS,
    SHORT_12,
    SHORT_16,
    SLIDING,
    SMOLLM3,
    SOLAR_OPEN,
    STARCODER2,
    TIED,
    UNTIED,
    WIDE,
    WIDE_HEADS,
    YARN,
    YI,
    with_text,
    without,
)

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
    "mixtral-yarn-mqa": MIXTRAL
    | YARN
    | {
        "num_key_value_heads": 1,
        "num_attention_heads": 3,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 2,
    },
    "qwen3moe-yarn-biases": QWEN3_MOE
    | YARN
    | BIASES
    | TIED
    | {"num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2},
    "yi-gqa": YI,
    "yi-usual-names-tied": YI | TIED | MHA,
    "yi-linear-mqa": YI | LINEAR | MQA,
    "orion-gqa": ORION,
    "orion-mha-tied": ORION | MHA | TIED,
    "orion-dynamic-mqa": ORION | DYNAMIC | MQA,
    "index-gqa": INDEX,
    "index-mha": INDEX | MHA,
    "index-plain-head": INDEX | MQA | {"norm_head": False},
    "minicpm-gqa": MINICPM,
    "minicpm-tied": MINICPM | TIED | MHA,
    "minicpm-whole-base-mqa": MINICPM
    | MQA
    | {"dim_model_base": 128, "scale_depth": 0.7, "num_hidden_layers": 2},
    "internlm2-gqa": INTERNLM2,
    "internlm2-mha-biases": INTERNLM2 | MHA | {"bias": True},
    "internlm2-dynamic-mqa": INTERNLM2 | DYNAMIC | MQA | {"hidden_size": 96, "num_attention_heads": 3},
    "granite-gqa": GRANITE,
    "granite-biases-tied": GRANITE | BIASES | TIED | {"mlp_bias": True},
    "granite-mqa-yarn": GRANITE
    | YARN
    | MQA
    | {"hidden_size": 96, "num_attention_heads": 3, "residual_multiplier": 0.4},
    "gemma-gqa": GEMMA,
    "gemma-mqa-untied": GEMMA | MQA | UNTIED,
    "gemma-mha-biases": GEMMA | MHA | BIASES,
    "gemma3-gqa": GEMMA3,
    "gemma3-linear-default-pattern": without(GEMMA3, "sliding_window_pattern", "rope_local_base_freq")
    | {
        "num_hidden_layers": 7,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3-caps-layer-types": GEMMA3
    | MQA
    | UNTIED
    | {
        "query_pre_attn_scalar": 20,
        "final_logit_softcapping": 10.0,
        "layer_types": [FULL, SLIDING, FULL, SLIDING],
    },
    "gemma3vl-old-names": GEMMA3_VL,
    "gemma3vl-new-names": with_text(GEMMA3_VL, num_key_value_heads=1, sliding_window=5),
    "gemmoe-gqa": GEMMOE,
    "gemmoe-top3": GEMMOE | {"num_experts_per_tok": 3, "num_local_experts": 5},
    "gemmoe-mqa-untied": GEMMOE | MQA | UNTIED,
    "starcoder2-gqa": STARCODER2,
    "starcoder2-window-untied": STARCODER2 | MQA | UNTIED | {"sliding_window": 8},
    "starcoder2-old-eps-no-bias": without(STARCODER2, "norm_epsilon")
    | MHA
    | {"layer_norm_epsilon": 1e-05, "use_bias": False, "intermediate_size": 64},
    "cohere-gqa": COHERE,
    "cohere-qk-norm": COHERE
    | MQA
    | {"use_qk_norm": True, "hidden_size": 96, "num_attention_heads": 3},
    "cohere-biases-mha": COHERE | BIASES | MHA | {"logit_scale": 0.0625},
    "cohere2-pattern": COHERE2,
    "cohere2-layer-types": COHERE2
    | MQA
    | {"sliding_window": 5, "layer_types": [FULL, SLIDING, SLIDING, FULL]},
    "cohere2-default-pattern-biases": without(COHERE2, "sliding_window_pattern")
    | BIASES
    | MHA
    | {"num_hidden_layers": 5},
    "dbrx-clip": DBRX,
    "dbrx-square-experts": DBRX
    | {"ffn_config": DBRX["ffn_config"] | {"ffn_hidden_size": 128, "moe_top_k": 1}},
    "dbrx-hard-clip-mqa": DBRX
    | {
        "n_heads": 8,
        "attn_config": {"clip_qkv": 0.5, "kv_n_heads": 1, "rope_theta": 10000.0},
        "rope_theta": 10000.0,
        "ffn_config": DBRX["ffn_config"] | {"moe_top_k": 4},
    },
    "gpt2-mha": GPT2,
    "gpt2-bare-narrow": GPT2 | {"n_inner": 100, "n_embd": 96, "n_head": 3},
    "gpt2-erf-short": GPT2 | {"activation_function": "gelu", "n_positions": 64, "n_layer": 2},
    "gptbigcode-mqa": BIGCODE,
    "gptbigcode-narrow": BIGCODE | {"n_inner": 100, "n_embd": 96, "n_head": 3},
    "gptbigcode-short": BIGCODE | {"n_positions": 64, "n_layer": 2, "n_head": 1},
    "glm4-gqa-biases": GLM4,
    "glm4-no-biases-tied": GLM4 | MHA | TIED | {"attention_bias": False},
    "glm4-mqa-full-rotation": GLM4 | MQA | {"partial_rotary_factor": 1.0},
    "glm-gqa-biases": GLM,
    "glm-no-biases-tied": GLM | MHA | TIED | {"attention_bias": False},
    "glm-mqa-quarter": GLM | MQA | {"partial_rotary_factor": 0.25},
    "pixtral-old-names": PIXTRAL,
    "pixtral-new-names-window": with_text(PIXTRAL, sliding_window=8, num_key_value_heads=1),
    "mistral3-old-names": MISTRAL3,
    "mistral3-new-names-tied": with_text(MISTRAL3 | TIED, tie_word_embeddings=True),
    "qwen2vl-old-names": QWEN2_VL,
    "qwen2vl-new-names-tied": with_text(QWEN2_VL | TIED, tie_word_embeddings=True, num_key_value_heads=1),
    "qwen25vl-old-names": QWEN25_VL,
    "qwen25vl-new-names": with_text(QWEN25_VL, num_key_value_heads=4),
    "olmo2-gqa": OLMO2,
    "olmo2-mha-biases-tied": OLMO2 | MHA | BIASES | TIED,
    "olmo2-mqa-linear": OLMO2 | MQA | LINEAR,
    "olmo3-gqa": OLMO3,
    "olmo3-yarn": OLMO3 | YARN | MHA,
    "olmo3-layer-types-mqa": OLMO3
    | MQA
    | {"sliding_window": 5, "layer_types": [FULL, SLIDING, SLIDING, FULL]},
    "smollm3-interval": SMOLLM3,
    "smollm3-list-yarn": SMOLLM3 | YARN | MQA | UNTIED | {"no_rope_layers": [0, 1, 1, 0]},
    "smollm3-window-biases": SMOLLM3
    | BIASES
    | {
        "no_rope_layer_interval": 2,
        "use_sliding_window": True,
        "sliding_window": 8,
        "mlp_bias": True,
    },
    "qwen2moe-shared": QWEN2_MOE,
    "qwen2moe-dense-layers-renormalised": QWEN2_MOE
    | MHA
    | {
        "num_hidden_layers": 3,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
        "shared_expert_intermediate_size": 32,
    },
    "qwen2moe-window-no-biases": QWEN2_MOE
    | MQA
    | TIED
    | {
        "num_hidden_layers": 3,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 3,
        "qkv_bias": False,
    },
    "glm4moe-one-group": GLM4_MOE,
    "glm4moe-groups-qk-norm": GLM4_MOE
    | BIASES
    | {
        "use_qk_norm": True,
        "n_routed_experts": 12,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": 2,
    },
    "glm4moe-as-they-are-mqa": GLM4_MOE
    | MQA
    | {
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 0,
        "num_hidden_layers": 2,
    },
    "gptoss-window-yarn": GPT_OSS,
    "gptoss-clamp-bites-layer-types": GPT_OSS
    | MQA
    | {
        "swiglu_limit": 0.5,
        "num_hidden_layers": 3,
        "num_experts_per_tok": 3,
        "sliding_window": 5,
        "layer_types": [FULL, SLIDING, SLIDING],
    },
    "gptoss-plain-rope-tied": without(GPT_OSS, "rope_scaling", "rope_theta")
    | MHA
    | TIED
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "llama4-chunks": LLAMA4,
    "llama4-dense-layers-no-norm": LLAMA4
    | MQA
    | {
        "interleave_moe_layer_step": 2,
        "use_qk_norm": False,
        "attention_chunk_size": 24,
        "no_rope_layers": [1, 0, 0, 1],
    },
    "llama4-llama3-rope": LLAMA4
    | MHA
    | LLAMA3
    | {"num_experts_per_tok": 2, "moe_layers": [0, 3], "attn_temperature_tuning": False},
    "exaone4-window": EXAONE4,
    "exaone4-full-llama3": EXAONE4
    | LLAMA3
    | MHA
    | TIED
    | {"sliding_window": None, "sliding_window_pattern": None, "layer_types": [FULL] * 4},
    "exaone4-pattern-mqa": without(EXAONE4, "layer_types")
    | MQA
    | {"sliding_window": 5, "sliding_window_pattern": 2},
    "granitemoe-gqa": GRANITE_MOE,
    "granitemoe-top3-tied": GRANITE_MOE | MHA | TIED | {"num_experts_per_tok": 3},
    "granitemoeshared-mqa": GRANITE_MOE_SHARED | MQA,
    "granitehybrid-rope-experts": GRANITE_HYBRID,
    "granitehybrid-dense": GRANITE_HYBRID
    | {"num_key_value_heads": 4, "num_local_experts": 0, "num_experts_per_tok": 0},
    "granitehybrid-nope-tied": GRANITE_HYBRID | MQA | TIED | {"position_embedding_type": None},
    "hunyuan-alpha": HUNYUAN,
    "hunyuan-plain-tied": without(HUNYUAN, "rope_scaling") | MHA | TIED,
    "hunyuan-biases-mqa": HUNYUAN | MQA | BIASES,
    "hunyuanmoe-gqa": HUNYUAN_MOE,
    "hunyuanmoe-lists-top1": HUNYUAN_MOE | MHA | {"moe_topk": [1, 1], "num_experts": 4},
    "hunyuanmoe-mqa-tied": HUNYUAN_MOE | MQA | TIED,
    "seedoss-qkv-biases": SEED_OSS,
    "seedoss-all-biases-tied": SEED_OSS | MHA | TIED | {"attention_out_bias": True, "mlp_bias": True},
    "seedoss-no-biases-mqa": SEED_OSS | MQA | {"attention_bias": False},
    "ernie-tied": ERNIE,
    "ernie-biases": ERNIE | MHA | UNTIED | {"use_bias": True},
    "ernie-mqa": ERNIE | MQA | {"head_dim": 48, "num_attention_heads": 3},
    "erniemoe-shared": ERNIE_MOE,
    "erniemoe-interval-untied": ERNIE_MOE
    | MQA
    | UNTIED
    | {"num_hidden_layers": 4, "moe_layer_interval": 2, "moe_num_shared_experts": 1},
    "erniemoe-no-shared": ERNIE_MOE
    | MHA
    | {
        "moe_num_shared_experts": 0,
        "moe_layer_start_index": 0,
        "moe_layer_end_index": 1,
        "moe_k": 3,
    },
    "arcee-gqa": ARCEE,
    "arcee-yarn-biases": ARCEE | YARN | BIASES | {"mlp_bias": True},
    "arcee-mqa-tied": ARCEE | MQA | TIED,
    "olmoe-gqa": OLMOE,
    "olmoe-renormalised-tied": OLMOE | TIED | MHA | {"norm_topk_prob": True, "num_experts_per_tok": 3},
    "olmoe-biases-mqa": OLMOE | MQA | BIASES | {"num_experts": 5},
    "minimaxm2-half-rotation": MINIMAX_M2,
    "minimaxm2-full-rotation-tied": without(MINIMAX_M2, "partial_rotary_factor", "rotary_dim") | MHA | TIED,
    "minimaxm2-mqa-top3": MINIMAX_M2 | MQA | {"num_experts_per_tok": 3},
    "dots1-one-group": DOTS1,
    "dots1-groups-biases": DOTS1
    | BIASES
    | {"n_routed_experts": 12, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2},
    "dots1-mqa-as-they-are": DOTS1 | MQA | TIED | {"norm_topk_prob": False, "first_k_dense_replace": 0},
    "ministral3-gqa": MINISTRAL3,
    "ministral3-strong-growth-tied": MINISTRAL3
    | TIED
    | {"rope_parameters": MINISTRAL3["rope_parameters"] | {"llama_4_scaling_beta": 0.7}},
    "ministral3-window-mqa": MINISTRAL3 | MQA | {"sliding_window": 8},
    "deepseekv2-groups-yarn": DEEPSEEK_V2,
    "deepseekv2-odd-sizes-greedy": DEEPSEEK_V2
    | ODD_LATENT
    | {"topk_method": "greedy", "first_k_dense_replace": 0, "rope_scaling": None},
    "deepseekv2-biases-mscales": DEEPSEEK_V2
    | {
        "attention_bias": True,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "rope_scaling": DEEPSEEK_YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    },
    "deepseekv2lite-yarn": DEEPSEEK_V2_LITE,
    "deepseekv2lite-odd-sizes-tied": DEEPSEEK_V2_LITE | ODD_LATENT | TIED,
    "deepseekv2lite-one-head-plain-rope": DEEPSEEK_V2_LITE
    | {
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "rope_scaling": None,
    },
    "deepseekv3-groups-yarn": DEEPSEEK_V3,
    "deepseekv3-odd-sizes-as-they-are": DEEPSEEK_V3
    | ODD_LATENT
    | {
        "q_lora_rank": 33,
        "kv_lora_rank": 39,
        "qk_nope_head_dim": 21,
        "norm_topk_prob": False,
        "n_group": 3,
        "routed_scaling_factor": 1.0,
        "rope_scaling": None,
    },
    "deepseekv3-biases-neox-no-compression": DEEPSEEK_V3
    | {
        "attention_bias": True,
        "q_lora_rank": None,
        "rope_interleave": False,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "rope_scaling": DEEPSEEK_YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    },
    "kimik2-one-group": KIMI_K2,
    "kimik2-many-experts": KIMI_K2
    | {
        "n_routed_experts": 24,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.827,
        "num_hidden_layers": 2,
    },
    "kimik2-odd-sizes-tied": KIMI_K2 | ODD_LATENT | TIED | {"first_k_dense_replace": 2},
    "ministral-window-everywhere": MINISTRAL,
    "ministral-layer-types-mqa": MINISTRAL | MQA | {"layer_types": [FULL, SLIDING, SLIDING, FULL]},
    "ministral-wide-window-tied": MINISTRAL | TIED | {"sliding_window": 33, "num_hidden_layers": 2},
    "cwm-default-pattern": CWM,
    "cwm-layer-types-tied": CWM | TIED | {"layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL]},
    "cwm-mqa-default-rope": CWM | MQA | {"rope_scaling": None, "num_hidden_layers": 3},
    "solaropen-one-group": SOLAR_OPEN,
    "solaropen-groups-biases": SOLAR_OPEN
    | BIASES
    | {"n_routed_experts": 12, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2},
    "solaropen-mqa-yarn-as-they-are": SOLAR_OPEN | MQA | YARN | {"norm_topk_prob": False},
    "glm4moelite-first-dense": GLM4_MOE_LITE,
    "glm4moelite-layer-types-tied": GLM4_MOE_LITE
    | TIED
    | {"mlp_layer_types": ["sparse", "dense", "sparse"], "first_k_dense_replace": 1},
    "glm4moelite-odd-sizes-neox": GLM4_MOE_LITE
    | ODD_LATENT
    | {"rope_interleave": False, "q_lora_rank": None, "norm_topk_prob": False},
    "qwen3vl-gqa": QWEN3_VL,
    "qwen3vl-mqa-tied": with_text(QWEN3_VL, **MQA, tie_word_embeddings=True) | TIED,
    "qwen3vl-biases": with_text(QWEN3_VL, attention_bias=True, num_hidden_layers=2),
    "qwen3vlmoe-gqa": QWEN3_VL_MOE,
    "qwen3vlmoe-dense-layers": with_text(
        QWEN3_VL_MOE, num_hidden_layers=3, decoder_sparse_step=2, num_key_value_heads=4
    ),
    "qwen3vlmoe-top2-tied": with_text(
        QWEN3_VL_MOE, num_experts_per_tok=2, mlp_only_layers=[0], tie_word_embeddings=True
    )
    | TIED,
    "mistral3-ministral3-old-names": MISTRAL3_MINISTRAL3,
    "mistral3-ministral3-new-names-tied": with_text(MISTRAL3_MINISTRAL3, tie_word_embeddings=True)
    | TIED,
    "mistral3-ministral3-window-mqa": with_text(MISTRAL3_MINISTRAL3, **MQA, sliding_window=8),
    "llama-wide": WIDE,
    "qwen2-wide": QWEN2 | WIDE_HEADS,
    "mixtral-wide": MIXTRAL | WIDE_HEADS | {"num_hidden_layers": 2},
    "phi3-wide": PHI3 | WIDE_HEADS | {"num_key_value_heads": 2},
}

# Which text of a case is tried first. Position 28 of the first text of this one is ill-conditioned: noise
# of half a unit of float16 at the outputs of all modules moves its logits by up to 0.075, where the single
# float16 run that sets the limit happens to be off by 0.036.
FIRST_TEXT = {"gptoss-plain-rope-tied": 1}

# Context to load the case with, where it is not the config's own.
CONTEXT = {
    "llama-dynamic": 64,
    "orion-dynamic-mqa": 64,
    "internlm2-dynamic-mqa": 64,
    "phi3-longrope-short": 128,
}
