"""Streams in an event loop. The engine makes a socket readable; nothing polls and no thread waits."""

from __future__ import annotations

import asyncio
import weakref
from typing import Generic, Protocol, TypeVar

from pagella import _pagella

__all__ = ["events", "records"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Polled(Protocol[T_co]):
    """Something that says a value now, or rings a bell when it has one."""

    def poll(self, bell: _pagella.Bell, key: int) -> T_co | None: ...


class _Loop:
    """What one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = _pagella.Bell()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._keys = 0
        self._loop = weakref.ref(loop)
        loop.add_reader(self.bell.fileno(), self._rung)

    def key(self) -> int:
        """A number for a stream."""
        self._keys += 1
        return self._keys

    def _rung(self) -> None:
        for key in self.bell.take():
            future = self._waiting.pop(key, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def wait(self, key: int) -> None:
        """Until the bell rings with this number."""
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop of this stream is gone")
        future = loop.create_future()
        self._waiting[key] = future
        try:
            await future
        finally:
            self._waiting.pop(key, None)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()


def _here() -> _Loop:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Loop(loop)
    return found


class _Items(Generic[T]):
    """What a stream says, asynchronously."""

    def __init__(self, stream: _Polled[T]) -> None:
        self._stream = stream
        self._loop: _Loop | None = None
        self._key = 0

    def __aiter__(self) -> _Items[T]:
        return self

    async def __anext__(self) -> T:
        if self._loop is None:
            self._loop = _here()
            self._key = self._loop.key()
        loop, key = self._loop, self._key
        while True:
            try:
                item = self._stream.poll(loop.bell, key)
            except StopIteration:
                raise StopAsyncIteration from None
            if item is not None:
                return item
            await loop.wait(key)


def records(stream: _pagella.Stream) -> _Items[_pagella.Record]:
    """The records of an answer."""
    return _Items(stream)


def events(stream: _pagella.ChatStream) -> _Items[_pagella.ChatEvent]:
    """The events of an answer in a chat."""
    return _Items(stream)
