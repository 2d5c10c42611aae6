"""Writes the reference cases of adapters: run `python generate.py` with torch, transformers, peft and
safetensors, or `python generate.py CASE …` for some of them.

For every entry of cases.py: `<case>/adapter_config.json` as PEFT writes it, and
`<case>/expected.safetensors` with

    input_ids  i32 [64]       the text
    rows       i32 [r]        positions whose logits are stored
    logits     f32 [r, vocab] of transformers and peft in float32 with eager attention

and in its metadata the case of the family, and the name and shape of every tensor of the adapter. The
values of an adapter, like those of the model, are those of ../families/recipe.py under these names.
"""

import copy
import importlib.util
import json
import pathlib
import re
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
FAMILIES = HERE.parent / "families"


def load(path: pathlib.Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Both folders have a cases.py and a generate.py; the families' come first under their names.
adapters = load(HERE / "cases.py", "adapter_cases")
sys.path.insert(0, str(FAMILIES))
family_cases = load(FAMILIES / "cases.py", "cases")
family = load(FAMILIES / "generate.py", "family_generate")
recipe, host_of = family.recipe, family.host_of

PREFIX = "base_model.model."


def values(name: str, shape) -> torch.Tensor:
    return torch.from_numpy(recipe.tensor(name, tuple(shape), 1.0))


def host_with_weights(case: str, change=lambda name, weight: weight):
    host = host_of(case, copy.deepcopy(family_cases.CASES[case]))
    host.model.eval()
    with torch.no_grad():
        for name, shape, put in host.tensors():
            weight = torch.from_numpy(recipe.tensor(name, tuple(shape), host.norm_centre))
            put(change(name, weight))
    return host


def with_peft(case: str, options: dict):
    host = host_with_weights(case)
    model = peft.get_peft_model(host.model, peft.LoraConfig(**options)).eval()
    read = lambda: peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = {name: values(name, tensor.shape) for name, tensor in read().items()}
    peft.set_peft_model_state_dict(model, {name: tensor.clone() for name, tensor in tensors.items()})
    for name, tensor in read().items():
        assert torch.equal(tensor, tensors[name]), name
    return host, model, tensors, model.peft_config["default"].to_dict()


def by_hand(case: str, options: dict, pattern: str):
    rank, tensors = options["r"], {}
    scale = options["lora_alpha"] / rank

    def change(name: str, weight: torch.Tensor) -> torch.Tensor:
        base = name.removesuffix(".weight")
        if base == name or not re.search(pattern, base):
            return weight
        a = values(f"{PREFIX}{base}.lora_A.weight", (rank, weight.shape[1]))
        b = values(f"{PREFIX}{base}.lora_B.weight", (weight.shape[0], rank))
        tensors[f"{PREFIX}{base}.lora_A.weight"], tensors[f"{PREFIX}{base}.lora_B.weight"] = a, b
        return weight + scale * (b.double() @ a.double()).float()

    host = host_with_weights(case, change)
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    config = peft.LoraConfig(**options, target_modules=targets)
    return host, host.model, tensors, config.to_dict()


def plain(value):
    """A configuration as JSON has it: sets as sorted lists, enums as their values."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return getattr(value, "value", value)


def generate(name: str, case: str, host, model, tensors: dict, config: dict) -> None:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    config = plain(config) | {"base_model_name_or_path": None, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    ids, logits, margin = family.text_for(case, model, host.vocab)
    assert torch.isfinite(logits).all()
    rows = sorted(set(range(0, family.TOKENS, 9)) | {family.TOKENS - 1})
    metadata = {
        "family_case": case,
        "tensors": json.dumps({name: list(tensor.shape) for name, tensor in tensors.items()}),
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }
    stored = {
        "input_ids": ids.to(torch.int32),
        "rows": torch.tensor(rows, dtype=torch.int32),
        "logits": logits[rows].contiguous(),
    }
    save_file(stored, folder / "expected.safetensors", metadata)
    margin = f" margin {margin:.1e}" if margin < 1 else ""
    print(f"{name:24} {len(tensors):3} tensors, std {logits.std():.3f}{margin}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    wanted = lambda name: not sys.argv[1:] or any(name.startswith(start) for start in sys.argv[1:])
    for name, (case, options) in filter(lambda item: wanted(item[0]), adapters.CASES.items()):
        generate(name, case, *with_peft(case, options))
    for name, (case, options, pattern) in filter(lambda item: wanted(item[0]), adapters.BY_HAND.items()):
        generate(name, case, *by_hand(case, options, pattern))
