"""`ExLlamaV2Lora`: a low-rank adapter, as PEFT writes it."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from pagella import _pagella

if TYPE_CHECKING:
    from pagella.compat.exllamav2.model import ExLlamaV2

__all__ = ["ExLlamaV2Lora", "attached"]

_numbers = itertools.count()


class ExLlamaV2Lora:
    """An adapter and its scale. It is loaded when a generator first uses it."""

    def __init__(self, model: ExLlamaV2, lora_path: str, lora_scaling: float = 1.0) -> None:
        if not os.path.isdir(lora_path):
            raise AssertionError(f"there is no directory of an adapter: {lora_path}")
        self.model = model
        self.lora_path = lora_path
        self.lora_scaling = lora_scaling
        self._name = f"{os.path.basename(os.path.normpath(lora_path))}#{next(_numbers)}"
        self._handle: tuple[_pagella.Engine, _pagella.Adapter] | None = None

    @staticmethod
    def from_directory(
        model: ExLlamaV2, directory: str | os.PathLike[str], lora_scaling: float = 1.0
    ) -> ExLlamaV2Lora:
        """The adapter in a directory."""
        return ExLlamaV2Lora(model, os.fspath(directory), lora_scaling)

    def adapter(self, engine: _pagella.Engine) -> _pagella.Adapter:
        """The adapter in this engine."""
        if self._handle is None or self._handle[0] is not engine:
            self._handle = (engine, engine.load_adapter(self._name, self.lora_path))
        return self._handle[1]

    def unload(self) -> None:
        """Returns its memory, when no job uses it any more."""
        if self._handle is not None:
            self._handle[0].unload_adapter(self._name)
            self._handle = None


def attached(
    engine: _pagella.Engine, loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None
) -> list[tuple[_pagella.Adapter, float]]:
    """Adapters with their scales, as the engine takes them."""
    if loras is None:
        return []
    listed = loras if isinstance(loras, (list, tuple)) else [loras]
    return [(lora.adapter(engine), lora.lora_scaling) for lora in listed]
