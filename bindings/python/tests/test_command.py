"""`python -m pagella` is the command."""

from __future__ import annotations

import subprocess
import sys

import pagella


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "pagella", *words], capture_output=True, text=True)


def test_it_says_what_the_command_says(command: str) -> None:
    for words in (["--version"], ["completions", "bash"], ["run", "--raw", "CSS is", "--greedy"]):
        own = subprocess.run([command, *words], capture_output=True, text=True)
        ours = run(*words)
        assert (ours.returncode, ours.stdout) == (own.returncode, own.stdout), words


def test_wrong_usage_has_its_exit_code() -> None:
    assert run("no-such-verb").returncode == 2
    failed = run("run", "-m", "no-such-model", "x")
    assert failed.returncode == 1 and "no-such-model" in failed.stderr
    assert pagella.__version__ in run("--version").stdout
