"""Processes and their ends: forks, and programs that end while the model writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pagella.serve._server import Server

#: What is slow is not stuck.
PATIENCE_S = 240.0

FORKED = """
import os, sys
from pagella import Engine, Session, errors

engine = Engine.open("demo")
session = Session.open(engine.facts["dir"], {"cache_tokens": 256})
session.logits([5])
stream = engine.stream("CSS is", max_tokens=1500, default_stops=False, backpressure=1)
chat = engine.chat(max_tokens=2)
next(stream)

def refused(action):
    try:
        action()
    except errors.EngineError as problem:
        return "forked" in str(problem)

child = os.fork()
if child == 0:
    everything = [lambda: engine.complete("x"), lambda: next(stream), stream.finish, engine.stats,
                  lambda: session.logits([5]), lambda: chat.ask("x")]
    good = [refused(action) for action in everything]
    engine.close()
    own = Engine.open("demo")
    good.append(own.complete("CSS is", max_tokens=2).new_tokens == 2)
    # What is let go of here does not wait for the threads of the parent.
    del session, chat, stream, engine
    sys.exit(0 if all(good) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert engine.complete("CSS is", max_tokens=2).new_tokens == 2
print("done")
"""

ENDING = """
import sys, threading, time
from pagella import Engine

engine = Engine.open("demo")
ask = {"max_tokens": 1500, "default_stops": False}
own = lambda ids: (None, None)

def read(**more):
    while True:
        for _ in engine.stream("CSS is", **ask, **more):
            begun.release()

def wait(**more):
    while True:
        engine.generate(["CSS is", "HTML is"], **ask, **more)

begun = threading.Semaphore(0)
for work in (read, wait):
    for more in ({}, {"allowed_next": own}):
        threading.Thread(target=work, kwargs=more, daemon=True).start()
streams = [engine.stream("x", **ask), engine.stream("y", allowed_next=own, **ask)]
talk = engine.chat(**ask).send("CSS?")
for _ in range(8):
    begun.acquire()
print("done", flush=True)
HOW
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_a_forked_process_is_told_and_opens_its_own() -> None:
    done = run(FORKED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(("how", "code"), [("", 0), ("raise KeyError", 1)])
def test_a_program_ends_while_the_model_writes(how: str, code: int) -> None:
    done = run(ENDING.replace("HOW", how))
    assert (done.returncode, done.stdout) == (code, "done\n"), done.stderr


def test_a_server_whose_model_cannot_be_loaded_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("no JSON", encoding="utf-8")
    server = Server(str(tmp_path))
    try:
        with pytest.raises(RuntimeError, match="config.json is not valid JSON"):
            server.wait_ready(PATIENCE_S)
    finally:
        server.close()
