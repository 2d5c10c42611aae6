"""Bars on standard error, for people; silent where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Bar", "LoadBar"]

_WIDTH = 24
#: Seconds between two drawings.
_PAUSE = 0.1


class Bar:
    """How much of something is done, and how fast."""

    def __init__(self, total: int | None, unit: str, *, shown: bool = True) -> None:
        self._total, self._unit = total, unit
        self._shown = shown and sys.stderr is not None
        self._done = self._tokens = 0
        self._started = time.monotonic()
        self._drawn = 0.0
        self._terminal = self._shown and sys.stderr.isatty()

    def add(self, n: int, tokens: int = 0) -> None:
        """So much more is done."""
        self._done += n
        self._tokens += tokens
        now = time.monotonic()
        if self._terminal and now - self._drawn > _PAUSE:
            self._drawn = now
            print(f"\r{self._line()}\x1b[K", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        of = ""
        if self._total:
            filled = min(_WIDTH, _WIDTH * self._done // self._total)
            of = f"{'█' * filled}{'░' * (_WIDTH - filled)} "
        total = f"/{self._total}" if self._total is not None else ""
        line = f"{of}{self._done}{total} {self._unit} in {seconds:.1f} s"
        return f"{line}, {self._tokens / seconds:.0f} tokens/s" if self._tokens else line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            start, end = ("\r", "\x1b[K\n") if self._terminal else ("", "\n")
            print(f"{start}{self._line()}", end=end, file=sys.stderr, flush=True)


class LoadBar(Bar):
    """How much of a model is loaded."""

    def __init__(self) -> None:
        super().__init__(None, "modules")

    def update(self, done: int, total: int, _bytes_done: int, _bytes: int) -> None:
        """Takes a report of the loader."""
        self._total = total
        self.add(done - self._done)
