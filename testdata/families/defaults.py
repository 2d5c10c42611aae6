"""Writes defaults.json: what a missing key of a case means. Run `python defaults.py` with transformers.

Of every case of cases.py each key is taken away in turn, those of nested objects too, except SIZES.
Kept is how the configuration of transformers then differs from that of the whole case:
`{key: {other: value}}` with dotted paths, and `null` in place of the object where transformers refuses.
A key without an entry changes nothing. What all cases of an architecture have in common stands under
its name, the rest under that of the case.

Families that transformers does not have state their defaults in code beside their weights: OWN.
"""

import copy
import json
import logging
import pathlib

from transformers import AutoConfig, Llama4TextConfig

from bases import without
from cases import CASES

HERE = pathlib.Path(__file__).parent
# What says nothing about the shape of a model, or concerns eyes.
IGNORED = {
    "architectures", "model_type", "torch_dtype", "dtype", "vision_config", "transformers_version",
    "bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id",
}  # fmt: skip
# Sizes that a config must state.
SIZES = {"hidden_size", "num_hidden_layers", "n_embd", "n_layer", "d_model", "n_layers"}
SAME_AS = {"kimi_k2": "deepseek_v3"}
_LLAMA = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "num_key_value_heads": None,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
OWN: dict[str, dict] = {
    # https://huggingface.co/01-ai/Yi-6B, configuration_yi.py
    "yi": _LLAMA
    | {"max_position_embeddings": 4096, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 5e6},
    # https://huggingface.co/OrionStarAI/Orion-14B-Base, configuration_orion.py
    "orion": _LLAMA | {"max_position_embeddings": 4096, "num_key_value_heads": 40, "rms_norm_eps": 1e-5},
    # https://huggingface.co/internlm/internlm2-7b, configuration_internlm2.py
    "internlm2": _LLAMA | {"bias": True},
    # https://huggingface.co/openbmb/MiniCPM-2B-sft-bf16, configuration_minicpm.py
    "minicpm": _LLAMA
    | {"tie_word_embeddings": True, "scale_emb": 1, "scale_depth": 1, "dim_model_base": 1},
    # https://huggingface.co/IndexTeam/Index-1.9B, configuration_index.py
    "index": _LLAMA | {"norm_head": False},
    # https://huggingface.co/Crystalcareai/GemMoE-Base-Random, configuration_gemmoe.py
    "gemmoe": {
        "head_dim": 256,
        "hidden_activation": None,
        "max_position_embeddings": 8192,
        "num_key_value_heads": 16,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    },
}


def resolved(config_json: dict) -> dict:
    """The configuration as transformers understands it, or as the family's own code would."""
    config_json = copy.deepcopy(config_json)
    kind = config_json["model_type"]
    if kind in OWN:
        return OWN[kind] | config_json
    if config_json["architectures"] == ["Llama4ForCausalLM"]:
        return Llama4TextConfig(**config_json).to_dict()
    return AutoConfig.for_model(**config_json | {"model_type": SAME_AS.get(kind, kind)}).to_dict()


def paths(config: dict, prefix: str = "") -> list[str]:
    found = []
    for key, value in config.items():
        if key not in IGNORED | SIZES:
            found.append(prefix + key)
            if isinstance(value, dict):
                found += paths(value, f"{prefix}{key}.")
    return found


def taken_away(config: dict, path: str) -> dict:
    head, _, rest = path.partition(".")
    if not rest:
        return without(config, head)
    return config | {head: taken_away(config[head], rest)}


def flat(config: dict, prefix: str = "") -> dict:
    """Dotted paths of all values; rotary parameters are one value."""
    found = {}
    for key, value in config.items():
        if key in IGNORED:
            continue
        if isinstance(value, dict) and "rope" not in key:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def change(case: dict, path: str) -> dict | None:
    try:
        whole, less = flat(resolved(case)), flat(resolved(taken_away(case, path)))
    except Exception:
        return None
    return {key: value for key, value in less.items() if key not in whole or whole[key] != value}


def common(cases: dict[str, dict]) -> dict:
    """The entries that are the same in every case that has the key."""
    entries: dict[str, list] = {}
    for name, changes in cases.items():
        for path in paths(CASES[name]):
            entries.setdefault(path, []).append(changes.get(path, {}))
    return {path: found[0] for path, found in entries.items() if all(diff == found[0] for diff in found)}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    changes = {name: {path: change(case, path) for path in paths(case)} for name, case in CASES.items()}
    found: dict[str, dict] = {}
    for architecture in dict.fromkeys(case["architectures"][0] for case in CASES.values()):
        cases = {name: c for name, c in changes.items() if CASES[name]["architectures"][0] == architecture}
        shared = common(cases)
        found[architecture] = shared
        for name, own in cases.items():
            found[name] = {path: diff for path, diff in own.items() if path not in shared}
    lines = [
        f"{json.dumps(name)}: {json.dumps({k: v for k, v in diffs.items() if v != {}}, separators=(',', ':'))}"
        for name, diffs in found.items()
    ]
    (HERE / "defaults.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
