"""Many jobs, threads and event loops; what is let go of is given back."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pagella import Engine

THREADS = 32
JOBS = 1000
SHORT_JOBS = 10_000
#: Longest wait for anything; machines that run tests are slow.
PATIENCE_S = 240.0
#: Writes until it is stopped, and rests until its records are read.
ENDLESS: dict[str, Any] = {"max_tokens": 1500, "default_stops": False, "backpressure": 1}


def settled(engine: Engine) -> dict[str, int]:
    """Pages when no job is left; jobs end between two steps, so that may take a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stats = engine.stats()
        if stats["queue"]["active"] + stats["queue"]["pending"] == 0:
            pages: dict[str, int] = stats["pages"]
            return pages
        assert time.monotonic() < deadline, stats["queue"]


def test_a_thousand_jobs_of_32_threads(engine: Engine) -> None:
    prompts = [f"Item {n % 10} is" for n in range(JOBS)]
    alone = {p: engine.complete(p, greedy=True, max_tokens=2).text for p in set(prompts)}
    with ThreadPoolExecutor(THREADS) as pool:
        ask = pool.map(lambda p: engine.complete(p, greedy=True, max_tokens=2).text, prompts)
        assert all(text == alone[prompt] for prompt, text in zip(prompts, ask))
    assert settled(engine)["referenced"] == 0


def test_a_thousand_jobs_of_an_event_loop(engine: Engine) -> None:
    async def tell(n: int) -> str:
        stream = engine.stream(f"Item {n % 10} is", greedy=True, max_tokens=2)
        return "".join([record.text async for record in stream])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(tell(n) for n in range(JOBS)))

    told = asyncio.run(all_of_them())
    assert told[:10] * (JOBS // 10) == told
    assert settled(engine)["referenced"] == 0


def test_a_stream_that_is_collected_frees_its_pages(engine: Engine) -> None:
    streams = [engine.stream(f"{n} is", **ENDLESS) for n in range(4)]
    for stream in streams:
        next(stream)
    assert engine.stats()["queue"]["active"] == 4
    del stream, streams
    gc.collect()
    assert settled(engine)["referenced"] == 0


def test_a_stream_can_be_cancelled_from_elsewhere(engine: Engine) -> None:
    stream = engine.stream("CSS is", **ENDLESS)
    next(stream)
    elsewhere = threading.Thread(target=stream.cancel)
    elsewhere.start()
    elsewhere.join()
    done = stream.finish()
    assert done.eos_reason == "cancelled" and done.new_tokens < 1500


def test_an_event_loop_that_is_cancelled_frees_its_pages(engine: Engine) -> None:
    async def tell() -> None:
        async for _ in engine.stream("CSS is", **ENDLESS):
            # Whoever reads no further record waits for ever.
            await asyncio.Event().wait()

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(tell(), 0.05)

    asyncio.run(give_up())
    gc.collect()
    assert settled(engine)["referenced"] == 0


def test_other_threads_run_while_one_waits(engine: Engine) -> None:
    stream = engine.stream("CSS is", max_tokens=1500, default_stops=False)

    def count() -> None:
        for _ in range(1000):
            pass
        stream.cancel()

    counter = threading.Thread(target=count)
    counter.start()
    # It would be written to its end if the other thread had to wait for it.
    assert stream.finish().eos_reason == "cancelled"
    counter.join()


def resident_kib() -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_ten_thousand_short_jobs_leave_nothing(engine: Engine) -> None:
    # One id is the shortest prompt.
    run = lambda n: engine.generate([[5]] * n, greedy=True, max_tokens=1)  # noqa: E731
    run(SHORT_JOBS // 5)
    gc.collect()
    before = resident_kib()
    answers = run(SHORT_JOBS * 4 // 5)
    assert len(answers) == SHORT_JOBS * 4 // 5
    del answers
    gc.collect()
    # A kibibyte per job would be eight mebibytes.
    assert resident_kib() - before < 6 * 1024
    assert settled(engine)["referenced"] == 0


PROGRAMS = {
    "complete": "engine.complete('CSS is', max_tokens=1500, default_stops=False)",
    "generate": "engine.generate(['CSS is'] * 3, max_tokens=1500, default_stops=False)",
    "stream": "any(False for _ in engine.stream('CSS is', max_tokens=1500, default_stops=False))",
    "chat": "engine.chat(max_tokens=1500, default_stops=False).ask('CSS?')",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_ctrl_c_ends_what_waits(what: str) -> None:
    # Whoever starts the tests in the background has Ctrl-C ignored, which programs inherit.
    code = f"""
import signal
from pagella import Engine
signal.signal(signal.SIGINT, signal.default_int_handler)
engine = Engine.open("demo")
engine.complete("CSS is", max_tokens=1)
try:
    print("ready", flush=True)
    while True:
        {PROGRAMS[what]}
except KeyboardInterrupt:
    engine.complete("CSS is", max_tokens=1)
    print("interrupted", flush=True)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    os.kill(program.pid, signal.SIGINT)
    try:
        rest, _ = program.communicate(timeout=PATIENCE_S)
    finally:
        program.kill()
    assert rest == "interrupted\n"
