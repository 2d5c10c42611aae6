"""Every example runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(example: Path) -> None:
    written = example.read_text(encoding="utf-8")
    for name, package in (("import numpy", "numpy"), ("langchain", "langchain_core")):
        if name in written:
            pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, str(example)], input="What is CSS?\n\n", capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout, done.stderr
