"""What the tests share: one open demo model, and where the command is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagella import Engine

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    # LangChain's tests have a benchmark, which measures nothing here.
    if hasattr(config.option, "benchmark_disable"):
        config.option.benchmark_disable = True


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.open("demo", cache_tokens=8192, math="exact") as engine:
        yield engine


@pytest.fixture(scope="session")
def command() -> str:
    """The command in Rust."""
    program = os.environ.get("PAGELLA_BIN")
    if not program:
        pytest.skip("SKIPPED: PAGELLA_BIN does not name the command")
    return program
