"""Hooks: names that programs import. Using one raises, with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ExLlamaV2PostSamplingHook", "ExLlamaV2PostSamplingResult"]


@dataclass
class ExLlamaV2PostSamplingResult:
    """What a hook would be shown."""

    sampled_token: Any = None
    sampled_prob: Any = None
    candidate_tokens: Any = None
    candidate_probs: Any = None
    logits: Any = None
    feed_filters: bool = True


ExLlamaV2PostSamplingHook = Callable[[ExLlamaV2PostSamplingResult], None]
