"""What type checkers are told is what is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pagella
import stub

ROOT = Path(__file__).parents[1]


def run(*words: str, cwd: Path = ROOT) -> None:
    # Type checkers must find the package that the tests run with.
    package = Path(pagella.__file__).parent
    cache = os.environ.get("PAGELLA_MYPY_CACHE", os.devnull)
    env = {**os.environ, "MYPYPATH": str(package.parent), "MYPY_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_are_those_of_the_table() -> None:
    if os.environ.get("PAGELLA_BLESS"):
        stub.PLACE.write_text(stub.text(), encoding="utf-8")
    found = stub.PLACE.read_text(encoding="utf-8")
    assert found == stub.text(), "PAGELLA_BLESS=1 writes the table anew"


def test_the_package_and_the_examples_are_strictly_typed() -> None:
    pytest.importorskip("mypy")
    config = str(ROOT / "pyproject.toml")
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
    package = ["-p", "pagella"]
    run("mypy", "--config-file", config, *package)
    for example in examples:
        assert "# type: ignore" not in Path(example).read_text(encoding="utf-8")
    run("mypy", "--config-file", config, "--scripts-are-modules", *examples)


def test_the_native_module_is_as_its_stub_says(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    config = str(ROOT / "pyproject.toml")
    # It keeps a cache where it runs.
    run("mypy.stubtest", "pagella._pagella", "--mypy-config-file", config, cwd=tmp_path)


def test_importing_brings_nothing_along() -> None:
    code = (
        "import sys, pagella; "
        "print([name for name in ('numpy', 'torch', 'asyncio', 'tqdm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
