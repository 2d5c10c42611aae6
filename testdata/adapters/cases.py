"""Adapters for small random models of testdata/families.

A value is the case of the family and what LoraConfig is made of. `BY_HAND` are adapters for names that
transformers does not have as modules, because it stacks experts or splits what a checkpoint holds
fused: there the product is added to the weight of that name.
"""

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
ALL = ATTENTION + MLP

CASES = {
    "llama-all": ("llama-gqa", {"r": 8, "lora_alpha": 16, "target_modules": ALL}),
    "llama-head-rslora": (
        "llama-biases-tied",
        {"r": 5, "lora_alpha": 4, "use_rslora": True, "target_modules": [*ATTENTION, "lm_head"]},
    ),
    "llama-patterns": (
        "llama-gqa",
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": r".*\.(self_attn|mlp)\.(q|v|up)_proj",
            "rank_pattern": {"up_proj": 12, r"layers\.0\.self_attn\.q_proj": 2},
            "alpha_pattern": {"v_proj": 1},
            "layers_to_transform": None,
        },
    ),
    "llama-saved": (
        "llama-gqa",
        {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    ),
    "gemma-saved-embedding": (
        "gemma-mqa-untied",
        {"r": 4, "lora_alpha": 4, "target_modules": ALL, "modules_to_save": ["embed_tokens"]},
    ),
    "phi3-fused": (
        "phi3-longrope-short",
        {"r": 8, "lora_alpha": 16, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
    ),
    "gemma2-all": ("gemma2-gqa", {"r": 8, "lora_alpha": 8, "target_modules": "all-linear"}),
    "gemma3-all": ("gemma3-gqa", {"r": 8, "lora_alpha": 8, "target_modules": ALL}),
    "gemma3vl-prefixed": (
        "gemma3vl-new-names",
        {"r": 6, "lora_alpha": 9, "target_modules": r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"},
    ),
    "glm4-all": (
        "glm4-gqa-biases",
        {"r": 8, "lora_alpha": 16, "target_modules": [*ATTENTION, "gate_up_proj", "down_proj"]},
    ),
    "cohere-parallel": ("cohere-qk-norm", {"r": 8, "lora_alpha": 16, "target_modules": ALL}),
    "granite-multipliers": ("granite-gqa", {"r": 8, "lora_alpha": 16, "target_modules": [*ALL, "lm_head"]}),
    "gpt2-conv": (
        "gpt2-mha",
        {"r": 8, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True},
    ),
    "olmo2-post-norms": ("olmo2-gqa", {"r": 8, "lora_alpha": 16, "target_modules": ALL}),
    "qwen3-all": ("qwen3-gqa-tied", {"r": 8, "lora_alpha": 16, "target_modules": ALL}),
    "mixtral-attention": ("mixtral-gqa", {"r": 8, "lora_alpha": 16, "target_modules": ATTENTION}),
    "qwen2moe-shared": (
        "qwen2moe-shared",
        {"r": 8, "lora_alpha": 8, "target_modules": r".*(self_attn\.[qkvo]|shared_expert\.(gate|up|down))_proj"},
    ),
    "deepseekv2-latent": (
        "deepseekv2-groups-yarn",
        {
            "r": 8,
            "lora_alpha": 8,
            "target_modules": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"],
        },
    ),
}

# Names of a checkpoint, as regular expressions.
BY_HAND = {
    "mixtral-experts": (
        "mixtral-gqa",
        {"r": 4, "lora_alpha": 4},
        r"(q_proj|block_sparse_moe\.gate|experts\.\d+\.w[123])$",
    ),
    "internlm2-fused": (
        "internlm2-gqa",
        {"r": 8, "lora_alpha": 8},
        r"(wqkv|wo|feed_forward\.w[123])$",
    ),
}
