"""Images: names that programs import. Using them raises, with a sentence."""

from __future__ import annotations

from typing import Any

__all__ = ["ExLlamaV2MMEmbedding", "ExLlamaV2MultimodalProjector", "ExLlamaV2VisionTower"]

_SENTENCE = "images are not supported yet: Pagella runs the text side of vision models"


class ExLlamaV2VisionTower:
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(_SENTENCE)


class ExLlamaV2MMEmbedding:
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(_SENTENCE)


class ExLlamaV2MultimodalProjector:
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(_SENTENCE)
