"""Writes the names and types of settings from the engine's table: `python stub.py` into the package."""

from __future__ import annotations

import keyword
from pathlib import Path

import pagella

PLACE = Path(__file__).parents[1] / "python" / "pagella" / "_settings.py"

HEAD = '''"""Settings of a request, for type checkers. Written by tests/stub.py from the engine's table: change that.

Every spelling of a setting is a key; `pagella.parameters()` says what each does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, Union

from pagella._pagella import Adapter


class HasIds(Protocol):
    """An array or a tensor of token ids."""

    def tolist(self) -> Any: ...


#: Token ids, in whatever holds them.
Ids = Union[Sequence[int], HasIds]


class Settings(TypedDict, total=False):
    """What a request may say besides its prompt."""

'''


def text() -> str:
    """The module as it should be."""
    lines = [HEAD]
    seen: set[str] = set()
    for row in pagella.parameters():
        names = [
            name
            for name in dict.fromkeys(row["spellings"])
            if name.isidentifier() and not keyword.iskeyword(name) and name not in seen
        ]
        seen.update(names)
        if names:
            lines.append(f"    # {row['help']}.\n")
        lines += [f"    {name}: {row['annotation']}\n" for name in names]
    return "".join(lines)


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
