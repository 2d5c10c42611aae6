"""Writes one file of rotary goldens per scaling kind: run `python generate.py` with torch and transformers.

Each case holds a Llama config.json, the context it is served with, and what transformers' own function
for the kind returns at that length: `inv_freq` (float32) and `attention_factor`.
"""

import json
import pathlib

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

HERE = pathlib.Path(__file__).parent

# Unlike Llama's, Phi's function for unscaled rotation knows partial rotation.
FUNCTIONS = ROPE_INIT_FUNCTIONS | {"default": Phi3RotaryEmbedding.compute_default_rope_parameters}


def config(head_dim: int, theta: float, positions: int, scaling: dict, **other: object) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32,
        "hidden_size": 4 * head_dim,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "head_dim": head_dim,
        "rms_norm_eps": 1e-05,
        "rope_theta": theta,
        "max_position_embeddings": positions,
        "rope_scaling": scaling or None,
    } | other


def llama3(original: int, factor: float, low: float = 1.0, high: float = 4.0) -> dict:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def longrope(pairs: int, **other: object) -> dict:
    return {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.01 * i for i in range(pairs)],
        "long_factor": [1.0 + 0.9 * i for i in range(pairs)],
    } | other


def yarn(original: int, factor: float, **other: object) -> dict:
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original} | other


def dynamic(factor: float) -> dict:
    return {"rope_type": "dynamic", "factor": factor}


# Kind -> (config, context) pairs; contexts lie below, at and above the original length.
CASES = {
    "default": [
        (config(128, 10000.0, 4096, {}), 4096),
        (config(80, 1000000.0, 4096, {}), 4096),
        (config(128, 500000.0, 4096, {}, partial_rotary_factor=0.75), 4096),
        (config(96, 10000.0, 4096, {}, partial_rotary_factor=0.5), 4096),
        (config(64, 10000.0, 4096, {}, partial_rotary_factor=0.25), 4096),
    ],
    "linear": [
        (config(128, 10000.0, 4096, {"rope_type": "linear", "factor": 4.0}), 16384),
        (config(64, 1000000.0, 4096, {"rope_type": "linear", "factor": 2.5}, partial_rotary_factor=0.5), 4096),
    ],
    "dynamic": [
        (config(128, 10000.0, 4096, dynamic(2.0)), 2048),
        (config(128, 10000.0, 4096, dynamic(2.0)), 4096),
        (config(128, 10000.0, 4096, dynamic(2.0)), 16384),
        (config(64, 500000.0, 8192, dynamic(3.5), partial_rotary_factor=0.5), 20000),
    ],
    "llama3": [
        (config(128, 500000.0, 131072, llama3(8192, 8.0)), 131072),
        (config(64, 500000.0, 131072, llama3(8192, 32.0)), 4096),
        (config(128, 500000.0, 131072, llama3(4096, 16.0, 2.0, 32.0), partial_rotary_factor=0.5), 8192),
    ],
    "longrope": [
        (config(96, 10000.0, 131072, longrope(48), original_max_position_embeddings=4096), context)
        for context in (2048, 4096, 4097, 131072)
    ]
    + [
        (
            config(
                128,
                10000.0,
                131072,
                longrope(48, factor=32.0),
                original_max_position_embeddings=4096,
                partial_rotary_factor=0.75,
            ),
            131072,
        ),
        (
            config(96, 10000.0, 4096, longrope(48, attention_factor=1.25), original_max_position_embeddings=4096),
            8192,
        ),
        (config(96, 10000.0, 4096, longrope(48), original_max_position_embeddings=4096), 4096),
    ],
    "yarn": [
        (config(128, 1000000.0, 32768, yarn(32768, 4.0)), 32768),
        (config(128, 1000000.0, 131072, yarn(32768, 4.0)), 131072),
        (config(128, 1000000.0, 131072, yarn(32768, 4.0)), 1024),
        (config(64, 10000.0, 163840, yarn(4096, 40.0, mscale=1.0, mscale_all_dim=0.707)), 163840),
        (config(64, 10000.0, 163840, yarn(4096, 40.0, beta_fast=64.0, beta_slow=2.0, attention_factor=1.1)), 163840),
        (config(64, 150000.0, 131072, yarn(4096, 32.0, truncate=False)), 131072),
        (config(128, 10000.0, 131072, yarn(4096, 32.0), partial_rotary_factor=0.5), 131072),
        (config(64, 10000.0, 64, yarn(8, 8.0)), 64),
    ],
}


def golden(kind: str, config_json: dict, context: int) -> dict:
    # The function completes its config in place, hence the copy.
    hf_config = LlamaConfig(**json.loads(json.dumps(config_json)))
    inv_freq, attention_factor = FUNCTIONS[kind](hf_config, seq_len=context)
    return {
        "config": config_json,
        "context": context,
        "inv_freq": [float(value) for value in inv_freq],
        "attention_factor": float(attention_factor),
    }


if __name__ == "__main__":
    for kind, cases in CASES.items():
        goldens = [golden(kind, config_json, context) for config_json, context in cases]
        # One case per line keeps differences readable and the file small.
        lines = ",\n".join(json.dumps(case) for case in goldens)
        (HERE / f"{kind}.json").write_text(f"[\n{lines}\n]\n")
