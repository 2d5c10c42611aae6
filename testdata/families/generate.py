"""Writes the reference cases: run `python generate.py` with torch, transformers and safetensors, or
`python generate.py CASE …` for some of them (a name's beginning will do).

For every entry of cases.py: `<case>/config.json`, and `<case>/expected.safetensors` with

    input_ids  i32 [64]       the text
    rows       i32 [r]        positions whose logits are stored
    logits     f32 [r, vocab] of transformers in float32 with eager attention

and in its metadata the context to load the case with, the norm centre of recipe.py, the largest
distance of transformers' own float16 run from these logits, and the name and shape of every tensor
of a checkpoint. The weights are those of recipe.py. Also writes recipe.json, which pins the recipe
itself. How a case becomes a model of transformers, and its parameters tensors of a checkpoint, is
in hosts.py.
"""

import contextlib
import copy
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

import recipe
from cases import CASES, CONTEXT, FIRST_TEXT
from hosts import host_of

HERE = pathlib.Path(__file__).parent
TOKENS = 64

# Distance in rank between the last expert chosen and the first one left out that a text should keep:
# nearer than this, another rounding could choose another expert. Texts are tried until one does.
MARGIN_WANTED = 2e-3
MARGIN_MIN = 1e-4
TEXTS_MAX = 100


def write_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


@contextlib.contextmanager
def watched_choices():
    """Gives a list that receives the margin of every choice of experts or groups."""
    margins, whole = [], torch.topk

    def topk(values, k, *args, **kwargs):
        if k < values.shape[-1]:
            best = whole(values, k + 1, dim=-1).values
            margins.append((best[..., k - 1] - best[..., k]).min().item())
        return whole(values, k, *args, **kwargs)

    method, torch.topk, torch.Tensor.topk = torch.Tensor.topk, topk, topk
    try:
        yield margins
    finally:
        torch.topk, torch.Tensor.topk = whole, method


def run(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None], use_cache=False).logits[0].float()


def text_for(case: str, model: torch.nn.Module, vocab: int):
    """A text whose choices of experts are clear, its logits and the margin."""
    best = None
    for attempt in range(FIRST_TEXT.get(case, 0), TEXTS_MAX):
        name = f"ids/{case}" if attempt == 0 else f"ids/{case}/{attempt}"
        ids = torch.from_numpy(recipe.integers(name, TOKENS) % vocab)
        with watched_choices() as margins:
            logits = run(model, ids)
        margin = min(margins, default=1.0)
        if best is None or margin > best[2]:
            best = (ids, logits, margin)
        if margin > MARGIN_WANTED:
            break
    assert best[2] > MARGIN_MIN, f"experts {best[2]:.1e} apart"
    return best


def half(model: torch.nn.Module) -> torch.nn.Module:
    """The model in float16, its rotary frequencies as they were."""
    copied = copy.deepcopy(model).half()
    for name, module in model.named_modules():
        for kind in ("inv_freq", "original_inv_freq"):
            if isinstance(getattr(module, kind, None), torch.Tensor):
                setattr(copied.get_submodule(name), kind, getattr(module, kind).clone())
    return copied


def generate(case: str, config_json: dict) -> None:
    folder = HERE / case
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config_json)
    # transformers writes into the objects it is given, and cases share theirs.
    host = host_of(case, copy.deepcopy(config_json))
    model = host.model.eval()
    assert host.model.config._attn_implementation == "eager"
    shapes = {}
    with torch.no_grad():
        for name, shape, put in host.tensors():
            shapes[name] = list(shape)
            put(torch.from_numpy(recipe.tensor(name, tuple(shape), host.norm_centre)))
    ids, logits, margin = text_for(case, model, host.vocab)
    assert torch.isfinite(logits).all()
    rows = sorted(set(range(0, TOKENS, 7)) | set(range(TOKENS - 7, TOKENS)))
    f16_distance = (run(half(model), ids)[rows] - logits[rows]).abs().max().item()
    metadata = {
        "context": str(CONTEXT.get(case, host.context)),
        "norm_centre": str(host.norm_centre),
        "f16_distance": f"{f16_distance:.3e}",
        "tensors": json.dumps(shapes),
        "transformers": transformers.__version__,
    }
    tensors = {
        "input_ids": ids.to(torch.int32),
        "rows": torch.tensor(rows, dtype=torch.int32),
        "logits": logits[rows].contiguous(),
    }
    save_file(tensors, folder / "expected.safetensors", metadata)
    margin = f" margin {margin:.1e}" if margin < 1 else ""
    print(f"{case:32} std {logits.std():.3f} max {logits.abs().max():.3f} f16 {f16_distance:.1e}{margin}")


def pin_recipe() -> None:
    pins = []
    for name, shape, norm_centre in [
        ("model.embed_tokens.weight", (2, 4), 1.0),
        ("model.layers.0.self_attn.q_proj.weight", (2, 96), 1.0),
        ("model.layers.1.mlp.down_proj.weight", (2, 160), 1.0),
        ("model.layers.1.self_attn.k_proj.bias", (8,), 1.0),
        ("model.layers.2.self_attn.q_norm.weight", (8,), 1.0),
        ("model.norm.weight", (8,), 0.0),
        ("transformer.h.0.ln_1.weight", (8,), 1.0),
        ("model.layers.0.self_attn.sinks", (8,), 1.0),
        ("model.layers.0.mlp.experts.down_proj", (2, 3, 40), 1.0),
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
    torch.set_num_threads(1)
    pin_recipe()
    failed = []
    for case, config_json in CASES.items():
        if not sys.argv[1:] or any(case.startswith(start) for start in sys.argv[1:]):
            try:
                generate(case, config_json)
            except Exception as error:  # The others are still wanted.
                failed.append(case)
                print(f"{case:32} FAILED {type(error).__name__}: {error}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
