"""The kernels of ExLlamaV2: a module that programs import. Taking something from it raises, with a sentence."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"{name} belongs to the kernels of ExLlamaV2, which are not part of this: the engine has its own, and "
        "model.forward and generators call them"
    )
