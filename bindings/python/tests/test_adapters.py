"""Adapters, made here for the demo model: PEFT's files hold little more than two matrices per linear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")

from pagella import Engine
from pagella.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2Tokenizer,
)
from pagella.compat.exllamav2.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler

RANK, WIDTH, INNER = 4, 384, 1024


def write(folder: Path, tensors: dict[str, Any]) -> None:
    """A file of safetensors: a header in JSON, then the numbers."""
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(values.tobytes())


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "shouting"
    folder.mkdir()
    random = numpy.random.default_rng(3)
    tensors = {}
    for layer in range(8):
        stem = f"base_model.model.model.layers.{layer}.mlp.down_proj"
        tensors[f"{stem}.lora_A.weight"] = random.standard_normal((RANK, INNER), dtype="float32")
        tensors[f"{stem}.lora_B.weight"] = random.standard_normal((WIDTH, RANK), dtype="float32")
    write(folder, tensors)
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 1,
        "target_modules": ["down_proj"],
        "fan_in_fan_out": False,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_an_adapter_per_prompt(engine: Engine, adapter: Path) -> None:
    ask: dict[str, Any] = {"greedy": True, "max_tokens": 10, "default_stops": False}
    plain = engine.complete("CSS is", **ask).text
    loaded = engine.load_adapter("shouting", adapter)
    assert loaded.name == "shouting" and loaded.nbytes > 0
    pair = engine.generate(["CSS is"] * 2, each=[{"adapters": [(loaded, 1.0)]}, {}], **ask)
    assert pair[0].text != plain == pair[1].text
    assert [one.name for one in engine.adapters] == ["shouting"]
    engine.set_default_adapters([(loaded, 1.0)])
    assert engine.complete("CSS is", **ask).text == pair[0].text
    assert engine.unload_adapter("shouting")
    assert engine.complete("CSS is", **ask).text == plain
    with Engine.open("demo", adapters=[(adapter, 1.0)], math="exact") as own:
        assert own.complete("CSS is", **ask).text == pair[0].text


def test_a_lora_of_the_generator(adapter: Path) -> None:
    config = ExLlamaV2Config("demo")
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=1024, lazy=True)
    model.load_autosplit(cache)
    generator = ExLlamaV2DynamicGenerator(model, cache, ExLlamaV2Tokenizer(config))
    lora = ExLlamaV2Lora.from_directory(model, str(adapter))

    def ask() -> str:
        text: str = generator.generate(
            prompt="CSS is", max_new_tokens=8, gen_settings=ExLlamaV2Sampler.Settings.greedy()
        )
        return text

    plain = ask()
    generator.set_loras([lora])
    assert ask() != plain
    generator.set_loras(None)
    assert ask() == plain
    lora.unload()
    model.unload()
