"""`Trie`: tokens by the characters of their texts, for filters that walk along them."""

from __future__ import annotations

__all__ = ["Trie"]


class Trie:
    """A place behind some characters: which may follow, and the ids whose text ends here."""

    __slots__ = ("children", "leaf")

    def __init__(
        self, children: dict[str, Trie] | None = None, leaf: list[int] | None = None
    ) -> None:
        self.children: dict[str, Trie] = {} if children is None else children
        self.leaf: list[int] = [] if leaf is None else leaf

    def add_word(self, word: str, value: int) -> None:
        """Adds an id with its text."""
        place = self
        for character in word:
            place = place.children.setdefault(character, Trie())
        place.leaf.append(value)
