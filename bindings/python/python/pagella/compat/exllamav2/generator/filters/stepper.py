"""Filters written in Python, as the one function that the engine calls."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from pagella.compat.exllamav2 import tensors

__all__ = ["Stepper"]


class Stepper:
    """What several filters allow behind any ids. Filters go forward only, so whoever asks about another
    text, after a step back or a guess that was wrong, has them begin again."""

    def __init__(self, filters: Sequence[Any], vocab: int) -> None:
        self._filters, self._vocab = list(filters), vocab
        self._fed: list[int] | None = None
        # Masks of several steps may be wanted at once.
        self._lock = threading.Lock()
        #: What a filter raised; the engine's own error says it in words.
        self.failure: Exception | None = None

    def __call__(self, ids: list[int]) -> tuple[Iterable[int] | None, Iterable[int] | None]:
        with self._lock:
            try:
                self._go_to(ids)
                if all(one_can(one, "can_mask_logits") for one in self._filters):
                    return self._masked(), None
                return self._listed()
            except Exception as failure:
                self.failure = failure
                self._fed = None
                raise

    def _go_to(self, ids: list[int]) -> None:
        if self._fed is None or ids[: len(self._fed)] != self._fed:
            for one in self._filters:
                one.begin("")
            self._fed = []
        for token in ids[len(self._fed) :]:
            fed = tensors.ids([token])
            for one in self._filters:
                one.feed(fed)
            self._fed.append(token)

    def _listed(self) -> tuple[Iterable[int] | None, Iterable[int] | None]:
        allowed: set[int] | None = None
        ends: set[int] = set()
        for one in self._filters:
            passed, ending = one.next()
            if passed is None:
                continue
            here = {int(token) for token in passed}
            allowed = here if allowed is None else allowed & here
            ends |= {int(token) for token in ending or ()}
        return allowed, ends

    def _masked(self) -> Iterable[int]:
        row = tensors.numbers([0.0] * self._vocab, (self._vocab,), "float32")
        for one in self._filters:
            if one.prepare_logit_mask() is not True:
                raise RuntimeError(f"prepare_logit_mask of {type(one).__name__} did not return True")
            row = one.mask_logits(row)
        floor = float("-inf")
        return [token for token, value in enumerate(row.tolist()) if value != floor]


def one_can(one: Any, what: str) -> bool:
    """Whether a filter says yes to this; those of other packages may lack the question."""
    return hasattr(one, what) and bool(getattr(one, what)())
