"""`ExLlamaV2Tokenizer`: texts to ids and back."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pagella import _pagella
from pagella.compat.exllamav2 import tensors
from pagella.compat.exllamav2.config import ExLlamaV2Config
from pagella.compat.exllamav2.tokenizer.trie import Trie

__all__ = ["ExLlamaV2Tokenizer"]

#: Texts whose ids `cached_encode_str` remembers.
_CACHED_MAX = 100


class ExLlamaV2Tokenizer:
    """A model's tokenizer. Special tokens in a text count only with `encode_special_tokens`: without
    it no text can become one, whoever wrote it."""

    def __init__(
        self,
        config: ExLlamaV2Config,
        lazy_init: bool = True,
        force_json: bool = False,
        force_spm: bool = False,
    ) -> None:
        self.config = config
        directory = config.model_dir or ""
        self.native = native = _pagella.Tokenizer.from_dir(directory)
        self.bos_token_id = native.bos_id
        self.eos_token_id = native.eos_ids[0] if native.eos_ids else None
        self.pad_token_id = native.pad_id
        self.unk_token_id = native.unk_id
        self.bos_token = self._special(self.bos_token_id)
        self.eos_token = self._special(self.eos_token_id)
        self.pad_token = self._special(self.pad_token_id)
        self.unk_token = self._special(self.unk_token_id)
        self.newline_token, self.space_token = "\n", " "
        self.tokenizer_config_dict = self._read(directory, "tokenizer_config.json")
        self._cached: OrderedDict[tuple[str, Any], Any] = OrderedDict()

    @staticmethod
    def _read(directory: str, name: str) -> dict[str, Any] | None:
        path = Path(directory) / name
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _special(self, token: int | None) -> str:
        return "" if token is None else self.native.piece(token) or ""

    @cached_property
    def newline_token_id(self) -> int | None:
        """The id that ends the encoding of a line break."""
        return next(reversed(self.ids("\n")), None)

    @cached_property
    def space_token_id(self) -> int | None:
        """The id that ends the encoding of a space."""
        return next(reversed(self.ids(" ")), None)

    def ids(self, text: str, special: bool = False, add_bos: bool = False) -> list[int]:
        """Ids of a text as a list."""
        listed: list[int] = self.native.encode(text, special, False).tolist()
        if add_bos and self.bos_token_id is not None:
            listed.insert(0, self.bos_token_id)
        return listed

    def encode(
        self,
        text: str | Sequence[str],
        add_bos: bool = False,
        add_eos: bool = False,
        encode_special_tokens: bool = False,
        return_offsets: bool = False,
        embeddings: Sequence[Any] | None = None,
    ) -> Any:
        """Ids of a text, (1, n), or of several, padded on the left. With `return_offsets` also where
        each begins."""
        if embeddings:
            raise NotImplementedError("embeddings of images are not supported")
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self.ids(one, encode_special_tokens, add_bos) for one in texts]
        if add_eos and self.eos_token_id is not None:
            rows = [[*row, self.eos_token_id] for row in rows]
        width = max((len(row) for row in rows), default=0)
        pads = [width - len(row) for row in rows]
        padded = [[self.pad_token_id] * pad + row for pad, row in zip(pads, rows)]
        ids = tensors.numbers(padded, (len(rows), width), "int64")
        if not return_offsets:
            return ids
        return ids, tensors.numbers([-pad for pad in pads], (len(rows), 1), "int32")

    def decode(self, ids: Any, decode_special_tokens: bool = False) -> Any:
        """The text of ids, or a list of texts for a tensor of two axes, or for a list of tensors."""
        if isinstance(ids, (str, bytes)):
            raise TypeError(f"ids are needed, and {ids[:20]!r} is a text: encode it, or print it")
        listed = ids.tolist() if hasattr(ids, "tolist") else ids
        if _is_id(listed):
            return self._text([int(listed)], decode_special_tokens)
        listed = list(listed)
        if listed and not _is_id(listed[0]):
            return [self.decode(row, decode_special_tokens) for row in listed]
        if not listed and len(getattr(ids, "shape", (0,))) > 1:
            return [""] * int(ids.shape[0])
        return self._text(listed, decode_special_tokens)

    def _text(self, ids: list[int], special: bool) -> str:
        return self.native.decode([int(id) for id in ids], special)

    def encode_special(self, text: str) -> list[int]:
        """Ids of a text in which special tokens count, as a list."""
        return self.ids(text, special=True)

    def encode_unspecial(self, text: str) -> list[int]:
        """Ids of a text in which nothing is special, as a list."""
        return self.ids(text)

    @cached_property
    def tokenizer_model(self) -> TokenizerModel:
        """The vocabulary, as packages for constraints read it."""
        return TokenizerModel(self.native)

    @property
    def tokenizer(self) -> TokenizerModel:
        """The same."""
        return self.tokenizer_model

    @property
    def actual_vocab_size(self) -> int:
        """One more than the highest id."""
        return self.native.vocab_size

    @property
    def id_to_piece(self) -> list[str]:
        """The text of every id, special tokens included."""
        return self.get_id_to_piece_list(True)

    @property
    def piece_to_id(self) -> dict[str, int]:
        """The id of every text of a token."""
        return self.get_piece_to_id_dict()

    @cached_property
    def extended_id_to_piece(self) -> dict[int, str]:
        """Special tokens by id."""
        return {id: self._special(id) for id in self.native.special_ids}

    @cached_property
    def extended_piece_to_id(self) -> dict[str, int]:
        """Ids of special tokens."""
        return {piece: id for id, piece in self.extended_id_to_piece.items()}

    def cached_encode_str(self, text: str) -> Any:
        """As `encode`, which remembers the newest texts."""
        key = (text, None)
        if key not in self._cached:
            self._cached[key] = self.encode(text)
            if len(self._cached) > _CACHED_MAX:
                self._cached.popitem(last=False)
        return self._cached[key]

    def num_tokens(self, text: str) -> int:
        """How many ids a text has."""
        return len(self.ids(text))

    def single_id(self, token: str) -> int | None:
        """The id of a token, by its text or as the vocabulary writes it."""
        found = self.native.id_of(token)
        return found if found is not None else self._by_text.get(token)

    def single_token(self, token_id: int) -> Any:
        """An id as a tensor, (1, 1)."""
        return tensors.ids([token_id])

    def padding_mask(self, ids: Any) -> Any:
        """Minus infinity where an id is padding, else 0."""
        rows = tensors.as_rows(ids)
        mask = [[float("-inf") if i == self.pad_token_id else 0.0 for i in row] for row in rows]
        return tensors.numbers(mask, (len(rows), len(rows[0])), "float32")

    def get_vocab_size(self) -> int:
        """One more than the highest id."""
        return self.native.vocab_size

    @cached_property
    def _pieces(self) -> tuple[list[str], list[str]]:
        """The text of every id: without special tokens, and with them."""
        shown = [
            self.native.token_bytes(id).decode("utf-8", errors="replace")
            for id in range(self.native.vocab_size)
        ]
        hidden = list(shown)
        for id in self.native.special_ids:
            hidden[id] = ""
            shown[id] = self.native.piece(id) or ""
        return hidden, shown

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {piece: id for id, piece in reversed(list(enumerate(self._pieces[1])))}

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        """The text of every id."""
        return self._pieces[1] if include_special_tokens else self._pieces[0]

    def get_piece_to_id_dict(self) -> dict[str, int]:
        """The id of every text of a token; the lowest, where several have it."""
        return self._by_text

    def get_id_to_ord_list(self) -> list[int]:
        """For ids that stand for one byte, that byte, else -1."""
        all_bytes = (self.native.token_bytes(id) for id in range(self.native.vocab_size))
        return [one[0] if len(one) == 1 else -1 for one in all_bytes]

    @cached_property
    def _prefixes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for piece, id in sorted(self._by_text.items()):
            for end in range(1, len(piece)):
                if piece[:end] in found:
                    found[piece[:end]].append(id)
            if piece:
                found[piece] = [id]
        return {prefix: sorted(ids) for prefix, ids in found.items()}

    def get_prefix_to_ids_dict(self) -> dict[str, list[int]]:
        """For the text of every token, the ids whose text begins with it."""
        return self._prefixes

    @cached_property
    def _prefix_ids(self) -> dict[int, list[int]]:
        found = {self._by_text[piece]: ids for piece, ids in self._prefixes.items()}
        return {id: found.get(id, [id]) for id in range(self.native.vocab_size)}

    def get_char_trie(self) -> Trie:
        """All tokens by the characters of their texts; special ones have none."""
        return self._tries[0]

    def get_char_trie_ci(self) -> Trie:
        """The same by characters in lower case."""
        return self._tries[1]

    @cached_property
    def _tries(self) -> tuple[Trie, Trie]:
        exact, folded = Trie(), Trie()
        for id, piece in enumerate(self._pieces[0]):
            if piece:
                exact.add_word(piece, id)
                folded.add_word(piece.lower(), id)
        return exact, folded

    def get_prefix_id_to_ids_dict(self) -> dict[int, list[int]]:
        """For every id, the ids whose text begins with its own."""
        return self._prefix_ids


def _is_id(value: Any) -> bool:
    """Whether this is one number, not several of them."""
    return hasattr(value, "__index__") and not getattr(value, "shape", ())


class TokenizerModel:
    """The vocabulary, as packages for constraints read it."""

    def __init__(self, native: _pagella.Tokenizer) -> None:
        self._native = native

    def vocab_size(self) -> int:
        """One more than the highest id."""
        return self._native.vocab_size

    def id_to_piece(self, id: int) -> str:
        """A token as the vocabulary writes it."""
        return self._native.piece(id) or ""

    def piece_to_id(self, piece: str) -> int | None:
        """The id of a token, written as in the vocabulary."""
        return self._native.id_of(piece)

    @cached_property
    def vocab(self) -> list[str]:
        """Every token, written as in the vocabulary, by id."""
        return [self.id_to_piece(id) for id in range(self._native.vocab_size)]

    def enumerate_tokens(self) -> enumerate[str]:
        """Ids with their tokens."""
        return enumerate(self.vocab)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing in which is special."""
        ids: list[int] = self._native.encode(text, False, False).tolist()
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._native.decode(ids)
