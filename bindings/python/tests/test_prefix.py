"""Beginnings of requests: what they have in common, and where they go."""

from __future__ import annotations

import json
import random

from pagella.serve._prefix import CHUNK_BYTES, Seen, keys_of, order


def body(*turns: str, **more: object) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
    return json.dumps({"messages": messages, **more}).encode()


LONG = "All work and no play makes Jack a dull boy. " * 60


def test_a_conversation_begins_as_it_did_a_turn_ago() -> None:
    first = keys_of(body(LONG))
    second = keys_of(body(LONG, "Yes.", LONG))
    assert len(first) > 3 and second[: len(first) - 1] == first[:-1]
    assert keys_of(body(LONG + "x"))[:4] == first[:4]
    assert keys_of(body("x" + LONG))[0] != first[0]


def test_what_decides_the_text_is_part_of_its_beginning() -> None:
    plain = keys_of(body(LONG))
    for other in (
        keys_of(body(LONG, model="other")),
        keys_of(body(LONG, system="Be brief.")),
        keys_of(body(LONG, tools=[{"name": "f"}])),
        keys_of(body(LONG), "Bearer somebody else"),
    ):
        assert other[0] != plain[0]
    # How an answer is sampled does not.
    assert keys_of(body(LONG, temperature=0.3, stream=True)) == plain


def test_every_kind_of_body_has_keys_or_none() -> None:
    for text in (b"", b"[1]", b"no json", b"\xff", b"null"):
        assert keys_of(text) == []
    prompt = json.dumps({"prompt": LONG}).encode()
    assert len(keys_of(prompt)) == (len(json.dumps(LONG)) + 6) // CHUNK_BYTES
    assert len(keys_of(json.dumps({"prompt": "short"}).encode())) == 1
    assert keys_of(json.dumps({"input": [LONG, LONG], "instructions": "x"}).encode())


def test_the_longest_beginning_decides() -> None:
    seen: Seen[str] = Seen(100)
    keys = [bytes([n]) for n in range(5)]
    seen.note(keys[:2], "a")
    seen.note(keys[:4], "b")
    assert seen.depths(keys) == {"a": 2, "b": 4}
    idle = dict.fromkeys("abc", 0)
    assert order(idle, seen.depths(keys), keys[0], 8)[:2] == ["b", "a"]
    busy = {"a": 0, "b": 9, "c": 0}
    assert order(busy, seen.depths(keys), keys[0], 8)[0] == "a"


def test_the_newest_beginnings_are_remembered() -> None:
    seen: Seen[str] = Seen(10)
    seen.note([bytes([n]) for n in range(20)], "a")
    assert len(seen) == 10
    assert seen.depths([bytes([3])]) == {} and seen.depths([bytes([19])]) == {"a": 1}
    for replica in "bcdefg":
        seen.note([bytes([19])], replica)
    assert sorted(seen.depths([bytes([19])])) == ["d", "e", "f", "g"]


def test_routers_that_know_nothing_agree_and_spread() -> None:
    replicas = dict.fromkeys([f"replica-{n}" for n in range(8)], 0)
    shuffled = list(replicas)
    random.Random(1).shuffle(shuffled)
    firsts = [bytes([n]) for n in range(200)]
    chosen = [order(replicas, {}, first, 8)[0] for first in firsts]
    assert chosen == [order(dict.fromkeys(shuffled, 0), {}, first, 8)[0] for first in firsts]
    assert len(set(chosen)) == 8
    # One replica less moves only what was its own.
    left = {name: 0 for name in replicas if name != "replica-3"}
    moved = [order(left, {}, first, 8)[0] for first in firsts]
    assert all(a == b for a, b in zip(chosen, moved) if a != "replica-3")
