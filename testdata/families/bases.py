"""Configurations that the cases of a family start from, and changes that several of them make."""

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

def of(architecture: str, model_type: str) -> dict:
    return {"architectures": [architecture], "model_type": model_type}


def without(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


HEADS_OF_32 = {"head_dim": 32, "num_attention_heads": 4}
# Two key/value heads of 32 elements fit every kind of cache.
WIDE_HEADS = {"hidden_size": 128, "num_attention_heads": 4}
WIDE = LLAMA | WIDE_HEADS
GEMMA = without(
    GEMMA2,
    "query_pre_attn_scalar",
    "sliding_window",
    "attn_logit_softcapping",
    "final_logit_softcapping",
) | {**of("GemmaForCausalLM", "gemma"), "num_hidden_layers": 3}
GEMMA3 = GEMMA | {
    **of("Gemma3ForCausalLM", "gemma3_text"),
    "num_hidden_layers": 4,
    "query_pre_attn_scalar": 32,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
}
GEMMOE = GEMMA | {
    **of("GemmoeForCausalLM", "gemmoe"),
    "num_hidden_layers": 2,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
}
YI = WIDE | of("YiForCausalLM", "yi")
ORION = WIDE | of("OrionForCausalLM", "orion")
INDEX = WIDE | {**of("IndexForCausalLM", "index"), "norm_head": True}
MINICPM = WIDE | {
    **of("MiniCPMForCausalLM", "minicpm"),
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 40,
}
INTERNLM2 = WIDE | {**of("InternLM2ForCausalLM", "internlm2"), "bias": False}
GRANITE = WIDE | {
    **of("GraniteForCausalLM", "granite"),
    "embedding_multiplier": 11.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.22,
    "logits_scaling": 3.0,
}
STARCODER2 = without(WIDE, "rms_norm_eps") | {
    **of("Starcoder2ForCausalLM", "starcoder2"),
    "hidden_act": "gelu_pytorch_tanh",
    "norm_epsilon": 1e-05,
    "use_bias": True,
    "sliding_window": None,
    "tie_word_embeddings": True,
}
COHERE = without(WIDE, "rms_norm_eps") | {
    **of("CohereForCausalLM", "cohere"),
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.3,
    "tie_word_embeddings": True,
    "use_qk_norm": False,
    "pad_token_id": 0,
}
COHERE2 = without(COHERE, "use_qk_norm") | {
    **of("Cohere2ForCausalLM", "cohere2"),
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "sliding_window_pattern": 4,
}
DBRX = {
    **of("DbrxForCausalLM", "dbrx"),
    "d_model": 128,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 512,
    "vocab_size": 160,
    "attn_config": {"clip_qkv": 1.5, "kv_n_heads": 2, "rope_theta": 500000.0},
    "ffn_config": {
        "hidden_size": 128,
        "ffn_hidden_size": 64,
        "moe_num_experts": 6,
        "moe_top_k": 2,
        "ffn_act_fn": {"name": "silu"},
        "moe_normalize_expert_weights": 1.0,
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
GPT2 = {
    **of("GPT2LMHeadModel", "gpt2"),
    "n_embd": 128,
    "n_head": 4,
    "n_layer": 3,
    "n_inner": None,
    "n_positions": 512,
    "vocab_size": 160,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-05,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BIGCODE = GPT2 | {
    **of("GPTBigCodeForCausalLM", "gpt_bigcode"),
    "activation_function": "gelu_pytorch_tanh",
    "n_head": 2,
    "multi_query": True,
}
GLM4 = LLAMA | HEADS_OF_32 | {
    **of("Glm4ForCausalLM", "glm4"),
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "pad_token_id": 0,
}
GLM = GLM4 | of("GlmForCausalLM", "glm")
QWEN2_MOE = QWEN2 | WIDE_HEADS | {
    **of("Qwen2MoeForCausalLM", "qwen2_moe"),
    "num_hidden_layers": 2,
    "num_experts": 10,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 80,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_window_layers": 2,
}
GLM4_MOE = LLAMA | HEADS_OF_32 | {
    **of("Glm4MoeForCausalLM", "glm4_moe"),
    "partial_rotary_factor": 0.5,
    "use_qk_norm": False,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
}
GPT_OSS = LLAMA | HEADS_OF_32 | {
    **of("GptOssForCausalLM", "gpt_oss"),
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "swiglu_limit": 7.0,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
}
LLAMA4 = LLAMA | HEADS_OF_32 | {
    **of("Llama4ForCausalLM", "llama4_text"),
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "intermediate_size_mlp": 160,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 1,
    "attention_chunk_size": 16,
    "floor_scale": 8,
    "attn_scale": 0.1,
    "use_qk_norm": True,
    "rope_theta": 500000.0,
}
EXAONE4 = WIDE | {
    **of("Exaone4ForCausalLM", "exaone4"),
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "sliding_window_pattern": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}
OLMO2 = WIDE | of("Olmo2ForCausalLM", "olmo2")
OLMO3 = OLMO2 | {
    **of("Olmo3ForCausalLM", "olmo3"),
    "num_hidden_layers": 4,
    "sliding_window": 8,
    # transformers gives local layers this base whatever the config says.
    "rope_theta": 500000.0,
}
SMOLLM3 = WIDE | {
    **of("SmolLM3ForCausalLM", "smollm3"),
    "num_hidden_layers": 4,
    "no_rope_layer_interval": 4,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
GRANITE_MOE = GRANITE | {
    **of("GraniteMoeForCausalLM", "granitemoe"),
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
}
GRANITE_MOE_SHARED = GRANITE_MOE | {
    **of("GraniteMoeSharedForCausalLM", "granitemoeshared"),
    "shared_intermediate_size": 80,
}
GRANITE_HYBRID = GRANITE_MOE_SHARED | {
    **of("GraniteMoeHybridForCausalLM", "granitemoehybrid"),
    "layer_types": ["attention", "attention"],
    "position_embedding_type": "rope",
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
}
HUNYUAN = LLAMA | HEADS_OF_32 | {
    **of("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense"),
    "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0},
}
HUNYUAN_MOE = HUNYUAN | {
    **of("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe"),
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_experts": 6,
    "moe_topk": 2,
}
SEED_OSS = LLAMA | HEADS_OF_32 | {
    **of("SeedOssForCausalLM", "seed_oss"),
    "attention_bias": True,
    "attention_out_bias": False,
}
ERNIE = LLAMA | HEADS_OF_32 | {
    **of("Ernie4_5ForCausalLM", "ernie4_5"),
    "use_bias": False,
    "tie_word_embeddings": True,
    "rope_theta": 500000.0,
}
ERNIE_MOE = WIDE | {
    **of("Ernie4_5_MoeForCausalLM", "ernie4_5_moe"),
    "use_bias": False,
    "moe_intermediate_size": 64,
    "moe_num_experts": 8,
    "moe_k": 2,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_interval": 1,
    "tie_word_embeddings": True,
    "rope_theta": 500000.0,
}
MINISTRAL3 = without(MISTRAL, "rope_theta") | HEADS_OF_32 | {
    **of("Ministral3ForCausalLM", "ministral3"),
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}
OLMOE = OLMO2 | {
    **of("OlmoeForCausalLM", "olmoe"),
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": False,
}
MINIMAX_M2 = LLAMA | HEADS_OF_32 | {
    **of("MiniMaxM2ForCausalLM", "minimax_m2"),
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "partial_rotary_factor": 0.5,
    "rotary_dim": 16,
}
DOTS1 = without(GLM4_MOE, "use_qk_norm", "partial_rotary_factor") | of("Dots1ForCausalLM", "dots1")
# Latent attention; an entry of 64 + 64 elements fits every kind of cache.
DEEPSEEK_YARN = {
    "type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
DEEPSEEK_V3 = without(GLM4_MOE, "head_dim", "use_qk_norm", "partial_rotary_factor") | {
    **of("DeepseekV3ForCausalLM", "deepseek_v3"),
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "kv_lora_rank": 64,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "v_head_dim": 48,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
    "rope_scaling": DEEPSEEK_YARN,
}
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_nextn_predict_layers": 0,
    "rope_theta": 50000.0,
}
DEEPSEEK_V2 = without(DEEPSEEK_V3, "num_nextn_predict_layers") | {
    **of("DeepseekV2ForCausalLM", "deepseek_v2"),
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "routed_scaling_factor": 4.0,
    "scoring_func": "softmax",
    "topk_method": "group_limited_greedy",
    "rope_scaling": DEEPSEEK_YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
}
DEEPSEEK_V2_LITE = DEEPSEEK_V2 | {
    "q_lora_rank": None,
    "kv_lora_rank": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "topk_method": "greedy",
}
# Sizes that fit nothing.
ODD_LATENT = {
    "hidden_size": 56,
    "num_attention_heads": 7,
    "num_key_value_heads": 7,
    "kv_lora_rank": 42,
    "qk_nope_head_dim": 22,
    "qk_rope_head_dim": 14,
    "v_head_dim": 27,
}
ARCEE = WIDE | {**of("ArceeForCausalLM", "arcee"), "hidden_act": "relu2"}
MINISTRAL = MISTRAL | HEADS_OF_32 | {
    **of("MinistralForCausalLM", "ministral"),
    "num_hidden_layers": 4,
    "sliding_window": 8,
}
CWM = LLAMA | HEADS_OF_32 | {
    **of("CwmForCausalLM", "cwm"),
    "num_hidden_layers": 5,
    "sliding_window": 8,
    "rope_theta": 1000000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
SOLAR_OPEN = without(GLM4_MOE, "use_qk_norm", "partial_rotary_factor", "first_k_dense_replace") | {
    **of("SolarOpenForCausalLM", "solar_open"),
    "num_hidden_layers": 2,
}
GLM4_MOE_LITE = without(DEEPSEEK_V3, "scoring_func", "rope_scaling") | {
    **of("Glm4MoeLiteForCausalLM", "glm4_moe_lite"),
    "n_group": 1,
    "topk_group": 1,
    "rope_interleave": True,
}

# Text models inside vision models, which have the smallest of towers.
PIXTRAL = {
    **of("LlavaForConditionalGeneration", "llava"),
    "image_token_index": 10,
    "text_config": without(MISTRAL, "architectures") | HEADS_OF_32,
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 16,
        "image_size": 32,
        "patch_size": 16,
    },
}
MISTRAL3 = PIXTRAL | {
    **of("Mistral3ForConditionalGeneration", "mistral3"),
    "tie_word_embeddings": False,
    "spatial_merge_size": 2,
}
QWEN2_VL = {
    **of("Qwen2VLForConditionalGeneration", "qwen2_vl"),
    "image_token_id": 150,
    "video_token_id": 151,
    "vision_start_token_id": 152,
    "vision_end_token_id": 153,
    "tie_word_embeddings": False,
    "text_config": without(QWEN2, "architectures")
    | WIDE_HEADS
    | {"model_type": "qwen2_vl_text", "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}},
    "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 128, "num_heads": 2, "mlp_ratio": 1},
}
QWEN25_VL = QWEN2_VL | {
    **of("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
    "text_config": QWEN2_VL["text_config"] | {"model_type": "qwen2_5_vl_text"},
    "vision_config": {
        "depth": 1,
        "hidden_size": 32,
        "out_hidden_size": 128,
        "intermediate_size": 32,
        "num_heads": 2,
    },
}
QWEN3_VL = QWEN2_VL | {
    **of("Qwen3VLForConditionalGeneration", "qwen3_vl"),
    "text_config": without(
        QWEN3, "architectures", "use_sliding_window", "sliding_window", "max_window_layers"
    )
    | {
        "model_type": "qwen3_vl_text",
        "rope_theta": 5000000.0,
        "rope_scaling": {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True},
    },
    "vision_config": {
        "depth": 1,
        "hidden_size": 32,
        "out_hidden_size": 96,
        "intermediate_size": 32,
        "num_heads": 2,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    },
}
QWEN3_VL_MOE = QWEN3_VL | {
    **of("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
    "text_config": QWEN3_VL["text_config"]
    | {
        "model_type": "qwen3_vl_moe_text",
        "num_hidden_layers": 2,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}
MISTRAL3_MINISTRAL3 = MISTRAL3 | {"text_config": without(MINISTRAL3, "architectures")}
GEMMA3_VL = {
    **of("Gemma3ForConditionalGeneration", "gemma3"),
    "image_token_index": 150,
    "boi_token_index": 151,
    "eoi_token_index": 152,
    "text_config": without(GEMMA3, "architectures"),
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 16,
    },
}


def with_text(config: dict, **changes) -> dict:
    return config | {"text_config": config["text_config"] | changes}


MQA, MHA, TIED, UNTIED, BIASES = (
    {"num_key_value_heads": 1},
    {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 3},
    {"tie_word_embeddings": True},
    {"tie_word_embeddings": False},
    {"attention_bias": True},
)
# Past the original length of 32 tokens.
YARN = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}
LINEAR = {"rope_scaling": {"type": "linear", "factor": 4.0}}
DYNAMIC = {"max_position_embeddings": 40, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
LLAMA3 = {
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
}
FULL, SLIDING = "full_attention", "sliding_attention"

# Divisors per rotated pair, as longrope models have them: small for fast pairs, large for slow ones.
SHORT_12 = [1.0 + 0.05 * i for i in range(12)]
LONG_12 = [1.0 + 0.4 * i for i in range(12)]
SHORT_16 = [1.0 + 0.03 * i for i in range(16)]
LONG_16 = [1.1 + 0.5 * i for i in range(16)]
