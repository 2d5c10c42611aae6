"""What scripts take from ExLlamaV2's utilities."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from pagella.compat.exllamav2 import tensors

__all__ = ["SeqTensor", "Timer", "timed"]

Called = TypeVar("Called", bound=Callable[..., Any])


class Timer:
    """Seconds that a block of code takes."""

    def __init__(self) -> None:
        self.start_time = self.end_time = 0.0
        self.interval = 0.0

    def __enter__(self) -> Timer:
        self.start_time = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_time = time.time()
        self.interval = self.end_time - self.start_time


class SeqTensor:
    """Ids that grow. `torch()` is all of them as a tensor, (1, n)."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def torch(self) -> Any:
        """All of them."""
        return tensors.ids(self._ids)

    def torch_slice(self, start: int | None, end: int | None) -> Any:
        """Some of them."""
        return tensors.ids(self._ids[start:end])


def timed(function: Called) -> Called:
    """Prints how long each call of a function takes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with Timer() as timer:
            result = function(*args, **kwargs)
        print(f" -- {function.__name__}: {timer.interval * 1000:.1f} ms")
        return result

    return call  # type: ignore[return-value]
