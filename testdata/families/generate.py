"""Writes the reference cases: run `python generate.py` with torch, transformers and safetensors, or
`python generate.py CASE …` for some of them.

For every entry of cases.py: `<case>/config.json`, and `<case>/expected.safetensors` with

    input_ids  i32 [64]       the text
    rows       i32 [r]        positions whose logits are stored: every 4th and the last 16
    logits     f32 [r, vocab] of transformers in float32 with eager attention

and in its metadata the context to load the case with, the norm centre of recipe.py, and the name
and shape of every tensor of a checkpoint. The weights are those of recipe.py. Also writes
recipe.json, which pins the recipe itself.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

import recipe
from cases import CASES, CONTEXT

HERE = pathlib.Path(__file__).parent
TOKENS = 64


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def parts(model_type: str, name: str, parameter: torch.Tensor):
    """A parameter as the tensors of a checkpoint, which holds experts one by one."""
    if model_type == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
        gate, up, down = "w1", "w3", "w2"
    else:
        gate, up, down = "gate_proj", "up_proj", "down_proj"
    stack, _, kind = name.rpartition(".")
    if not stack.endswith(".experts"):
        yield name, parameter
    for e in range(parameter.shape[0] if stack.endswith(".experts") else 0):
        if kind == "gate_up_proj":
            inner = parameter.shape[1] // 2
            yield f"{stack}.{e}.{gate}.weight", parameter[e, :inner]
            yield f"{stack}.{e}.{up}.weight", parameter[e, inner:]
        else:
            assert kind == "down_proj"
            yield f"{stack}.{e}.{down}.weight", parameter[e]


def fill(model: torch.nn.Module, norm_centre: float) -> dict[str, list[int]]:
    """Sets all weights from the recipe; returns the tensors a checkpoint would hold."""
    shapes = {}
    with torch.no_grad():
        for whole, parameter in model.named_parameters():
            for name, part in parts(model.config.model_type, whole, parameter):
                shapes[name] = list(part.shape)
                part.copy_(torch.from_numpy(recipe.tensor(name, tuple(part.shape), norm_centre)))
    return shapes


# Least distance in probability between the last expert chosen and the first one left out: nearer
# than this, another order of additions could choose another expert.
MARGIN = 1e-4


def check_margins(model: torch.nn.Module, routed: list[torch.Tensor]) -> str:
    """Fails if a choice of experts is too close to call."""
    if not routed:
        return ""
    k = model.config.num_experts_per_tok
    best = [logits.softmax(-1).topk(k + 1).values for logits in routed]
    margin = min((p[:, k - 1] - p[:, k]).min().item() for p in best)
    assert margin > MARGIN, f"experts {margin:.1e} apart"
    return f" margin {margin:.1e}"


def generate(case: str, config_json: dict) -> None:
    folder = HERE / case
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config_json)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    assert type(model).__name__ == config_json["architectures"][0]
    assert model.config._attn_implementation == "eager"
    norm_centre = 0.0 if config.model_type == "gemma2" else 1.0
    shapes = fill(model, norm_centre)
    ids = torch.from_numpy(recipe.integers(f"ids/{case}", TOKENS) % config.vocab_size)
    routed = []
    for name, module in model.named_modules():
        if name.endswith(".mlp.gate"):
            module.register_forward_hook(lambda _module, _input, output: routed.append(output[0]))
    with torch.no_grad():
        logits = model(ids[None], use_cache=False).logits[0]
    margin = check_margins(model, routed)
    assert logits.dtype == torch.float32 and torch.isfinite(logits).all()
    rows = sorted(set(range(0, TOKENS, 4)) | set(range(TOKENS - 16, TOKENS)))
    metadata = {
        "context": str(CONTEXT.get(case, config.max_position_embeddings)),
        "norm_centre": str(norm_centre),
        "tensors": json.dumps(shapes),
        "transformers": transformers.__version__,
    }
    tensors = {
        "input_ids": ids.to(torch.int32),
        "rows": torch.tensor(rows, dtype=torch.int32),
        "logits": logits[rows].contiguous(),
    }
    save_file(tensors, folder / "expected.safetensors", metadata)
    print(f"{case:30} logits std {logits.std():.3f} max {logits.abs().max():.3f}{margin}")


def pin_recipe() -> None:
    pins = []
    for name, shape, norm_centre in [
        ("model.embed_tokens.weight", (2, 4), 1.0),
        ("model.layers.0.self_attn.q_proj.weight", (2, 96), 1.0),
        ("model.layers.1.mlp.down_proj.weight", (2, 160), 1.0),
        ("model.layers.1.self_attn.k_proj.bias", (8,), 1.0),
        ("model.layers.2.self_attn.q_norm.weight", (8,), 1.0),
        ("model.norm.weight", (8,), 0.0),
    ]:
        values = recipe.tensor(name, shape, norm_centre)
        pins.append(
            {
                "name": name,
                "len": int(values.size),
                "fan_in": shape[-1],
                "norm_centre": norm_centre,
                "first": [float(value) for value in values.ravel()[:8]],
                "sum": float(values.sum(dtype="float64")),
            }
        )
    write_json(HERE / "recipe.json", pins)


if __name__ == "__main__":
    pin_recipe()
    for case, config_json in CASES.items():
        if not sys.argv[1:] or case in sys.argv[1:]:
            generate(case, config_json)
