"""Modules of a model, for programs that look inside: their names, and the embedding table."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pagella.compat.exllamav2 import tensors

if TYPE_CHECKING:
    from pagella.compat.exllamav2.model import ExLlamaV2

__all__ = [
    "ExLlamaV2Attention",
    "ExLlamaV2Embedding",
    "ExLlamaV2LayerNorm",
    "ExLlamaV2Linear",
    "ExLlamaV2MLP",
    "ExLlamaV2Module",
    "ExLlamaV2MoEMLP",
    "ExLlamaV2RMSNorm",
    "Intervention",
    "modules",
]


class ExLlamaV2Module:
    """A part of a model. It has a name; the engine runs all of them at once, so `forward` of one is
    refused."""

    def __init__(self, model: ExLlamaV2, key: str, name: str) -> None:
        self.model, self.key, self.name = model, key, name

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refused."""
        raise NotImplementedError(
            f"forward of {self.key} alone is not supported: use model.forward, which runs all modules"
        )

    def is_quant(self) -> bool:
        """Whether its weights are quantised."""
        names = [name for name in self.model.config.tensor_file_map if name.startswith(self.key)]
        return not all(name.endswith((".weight", ".bias")) for name in names)


class ExLlamaV2Embedding(ExLlamaV2Module):
    """The table that turns ids into vectors."""

    @cached_property
    def _table(self) -> Any:
        return self.model.config.read_tensor(f"{self.key}.weight")

    def get_weight(self) -> Any:
        """The table, (vocabulary, hidden size), as float32."""
        return tensors.numbers(self._table, self._table.shape, "float32")

    def forward(self, hidden_states: Any, *_args: Any, **_kwargs: Any) -> Any:
        """Vectors of ids, (rows, n, hidden size), as float32."""
        import numpy

        rows = numpy.asarray(tensors.as_rows(hidden_states))
        found = self._table[rows]
        return tensors.numbers(found, found.shape, "float32")


class ExLlamaV2Attention(ExLlamaV2Module):
    """The attention of a layer."""


class ExLlamaV2MLP(ExLlamaV2Module):
    """The MLP of a layer."""


class ExLlamaV2MoEMLP(ExLlamaV2Module):
    """The experts of a layer."""


class ExLlamaV2RMSNorm(ExLlamaV2Module):
    """A norm."""


class ExLlamaV2LayerNorm(ExLlamaV2Module):
    """A norm of another kind."""


class ExLlamaV2Linear(ExLlamaV2Module):
    """A matrix."""


class Intervention:
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError("Intervention is not supported: the engine runs all modules at once")


def modules(model: ExLlamaV2) -> list[ExLlamaV2Module]:
    """The modules of a decoder."""
    names = model.config.tensor_file_map
    table = next((name for name in names if name.endswith("embed_tokens.weight")), None)
    key = "model.embed_tokens" if table is None else table.removesuffix(".weight")
    stem = key.removesuffix(".embed_tokens")
    found: list[ExLlamaV2Module] = [ExLlamaV2Embedding(model, key, "Embedding")]
    mlp: type[ExLlamaV2Module] = ExLlamaV2MoEMLP if model.config.num_experts else ExLlamaV2MLP
    name = "MoE MLP" if model.config.num_experts else "MLP"
    for layer in range(model.config.num_hidden_layers):
        found.append(ExLlamaV2Attention(model, f"{stem}.layers.{layer}.self_attn", "Attention"))
        found.append(mlp(model, f"{stem}.layers.{layer}.mlp", name))
    found.append(ExLlamaV2RMSNorm(model, f"{stem}.norm", "RMSNorm"))
    found.append(ExLlamaV2Linear(model, "lm_head", "Linear"))
    return found
