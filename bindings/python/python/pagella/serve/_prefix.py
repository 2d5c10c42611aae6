"""What requests have in common, as keys of their beginnings, and who has seen which.

A request's text is cut into chunks; the key of a chunk covers everything before it too, so two requests
share as many keys as they have chunks in common. Chunks are bytes, not tokens: a router has no tokenizer,
and a page of 256 tokens is some 600 to 1,000 bytes.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, TypeVar

__all__ = ["CHUNK_BYTES", "Seen", "keys_of", "order"]

#: Bytes of a chunk.
CHUNK_BYTES = 512
#: Chunks of a request that get a key; what differs behind that makes no other choice better.
_CHUNKS_MAX = 512
#: Fields that come first in what a model reads, and those that hold the text.
_BEFORE = ("model", "cache_salt", "tools", "functions", "system", "instructions", "documents")
_TEXTS = ("messages", "prompt", "input", "query")
#: Replicas that are asked, besides those with the beginning, before Ray waits and asks again.
_ASKED_MAX = 8
#: Replicas that are remembered for a key.
_HOLDERS_MAX = 4

R = TypeVar("R")


def _text(body: Mapping[str, Any]) -> str:
    parts = [f"{name}={json.dumps(body[name])}" for name in _BEFORE if name in body]
    for name in _TEXTS:
        value = body.get(name)
        if isinstance(value, list):
            # Item by item, so that a conversation begins as it did a turn ago.
            parts += [json.dumps(item) for item in value]
        elif value is not None:
            parts.append(json.dumps(value)[:-1])
    return "\n".join(parts)


def keys_of(body: bytes, identity: str = "") -> list[bytes]:
    """Keys of the beginnings of a request, the shortest first. Requests of different identities, such as
    API keys, share nothing, as on the server. What is no JSON object has none."""
    try:
        request = json.loads(body)
    except ValueError:
        return []
    if not isinstance(request, dict):
        return []
    text = _text(request).encode()
    state = blake2b(identity.encode(), digest_size=8).digest()
    found: list[bytes] = []
    for begin in range(0, min(len(text), _CHUNKS_MAX * CHUNK_BYTES), CHUNK_BYTES):
        chunk = text[begin : begin + CHUNK_BYTES]
        if len(chunk) < CHUNK_BYTES and found:
            break
        state = blake2b(state + chunk, digest_size=8).digest()
        found.append(state)
    return found


class Seen(Generic[R]):
    """Which replicas have seen which keys, the newest `keys_max` of them."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._holders: OrderedDict[bytes, tuple[R, ...]] = OrderedDict()

    def note(self, keys: Iterable[bytes], replica: R) -> None:
        """A replica got a request with these keys."""
        for key in keys:
            others = tuple(one for one in self._holders.pop(key, ()) if one != replica)
            self._holders[key] = (replica, *others[: _HOLDERS_MAX - 1])
        while len(self._holders) > self._keys_max:
            self._holders.popitem(last=False)

    def depths(self, keys: Sequence[bytes]) -> dict[R, int]:
        """How many of the leading keys each replica has seen."""
        found: dict[R, int] = {}
        for depth in range(len(keys), 0, -1):
            for replica in self._holders.get(keys[depth - 1], ()):
                found.setdefault(replica, depth)
        return found

    def __len__(self) -> int:
        return len(self._holders)


@lru_cache(maxsize=100_000)
def _number(name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def order(loads: Mapping[str, int], depths: Mapping[str, int], first: bytes, slack: int) -> list[str]:
    """Replicas, the one to ask first, and a few behind it. Who has the longest beginning comes first, unless
    it has `slack` requests more than the least busy one; then those with less to do. Equals are ordered by
    the first key, so that routers that know nothing of each other, and one that has just started, agree."""
    least = min(loads.values(), default=0)
    held = [name for name in depths if loads.get(name, sys.maxsize) <= least + slack]
    held.sort(key=depths.__getitem__, reverse=True)
    place = _number(first)

    def rank(name: str) -> tuple[int, int]:
        # A few requests more or less are no reason to begin a prompt where it is not. The hash of a pair of
        # numbers is the same in every process.
        return (loads[name] - least) // max(slack, 1), hash((place, _number(name.encode())))

    rest = (name for name in loads if name not in held)
    return held + heapq.nsmallest(_ASKED_MAX, rest, key=rank)
