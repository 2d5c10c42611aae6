"""`ExLlamaV2Sampler.Settings`: how the next id is chosen."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagella import _pagella
from pagella.compat.exllamav2 import tensors

if TYPE_CHECKING:
    from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ExLlamaV2Sampler", "padded"]

#: Fields that are handled apart; all others are spellings that the engine's table knows.
_NOT_TAKEN = ("mirostat_mu", "post_sampling_hooks", "token_bias", "cfg_scale", "filters")


@dataclass
class _Settings:
    """The defaults are not greedy, and not the model's own either."""

    token_repetition_penalty: float = 1.025
    token_repetition_range: int = -1
    token_repetition_decay: int = 0
    token_frequency_penalty: float = 0.0
    token_presence_penalty: float = 0.0
    temperature: float = 0.8
    smoothing_factor: float = 0.0
    min_temp: float = 0.0
    max_temp: float = 0.0
    temp_exponent: float = 1.0
    top_k: int = 50
    top_p: float = 0.8
    top_a: float = 0.0
    min_p: float = 0.0
    tfs: float = 0.0
    typical: float = 0.0
    skew: float = 0.0
    temperature_last: bool = False
    mirostat: bool = False
    mirostat_tau: float = 1.5
    mirostat_eta: float = 0.1
    mirostat_mu: float | None = None
    token_bias: Any = None
    cfg_scale: float | None = None
    dry_allowed_length: int = 2
    dry_base: float = 1.75
    dry_multiplier: float = 0.0
    dry_sequence_breakers: set[int] | None = None
    dry_max_ngram: int = 20
    dry_range: int = 0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_ignore_tokens: Iterable[int] | None = None
    post_sampling_hooks: list[Any] = field(default_factory=list)
    filters: list[Any] = field(default_factory=list)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__dataclass_fields__ and type(self) is _Settings:
            sentence = f"Settings have no {name!r}: it changes nothing"
            warnings.warn(sentence, stacklevel=2)
        super().__setattr__(name, value)

    @classmethod
    def greedy(cls, **kwargs: Any) -> _Settings:
        """Always the most likely id, whatever else is changed."""
        return cls(
            **{"temperature": 1.0, "token_repetition_penalty": 1.0, "top_p": 0.0, "top_k": 1, **kwargs}
        )

    def clone(self) -> _Settings:
        """A copy."""
        return copy.copy(self)

    def greedy_clone(self) -> _Settings:
        """The most likely id under the same penalties."""
        return dataclasses.replace(self, top_k=1, top_p=0.0)

    def disallow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: Iterable[int]) -> None:
        """Never chooses these ids."""
        self._bias(tokenizer, tokens, 0.0, float("-inf"))

    def allow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: Iterable[int | str]) -> None:
        """Chooses nothing but these ids, or tokens."""
        ids: list[int] = []
        for token in tokens:
            id = tokenizer.single_id(token) if isinstance(token, str) else int(token)
            if id is None:
                raise AssertionError(f"{token!r} is no single token of this model")
            ids.append(id)
        self._bias(tokenizer, ids, float("-inf"), 0.0)

    def _bias(
        self, tokenizer: ExLlamaV2Tokenizer, tokens: Iterable[int], rest: float, own: float
    ) -> None:
        if self.token_bias is None:
            vocab = max(tokenizer.config.vocab_size, tokenizer.get_vocab_size())
            self.token_bias = tensors.numbers([rest] * vocab, (vocab,), "float32")
        for token in tokens:
            self.token_bias[int(token)] = own

    def to_engine(self) -> dict[str, Any]:
        """The same as settings of a request."""
        if self.post_sampling_hooks:
            raise NotImplementedError(
                "post_sampling_hooks are not supported: the engine does not call Python for a token"
            )
        wanted = {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if one.name not in _NOT_TAKEN and getattr(self, one.name) is not None
        }
        for name in ("dry_sequence_breakers", "xtc_ignore_tokens"):
            if name in wanted:
                wanted[name] = sorted(int(id) for id in wanted[name])
        if self.token_bias is not None:
            wanted.update(_biases(self.token_bias_list()))
        return {"recommended": False, "rng": "mt19937", **wanted}

    def token_bias_list(self) -> list[float]:
        """The bias of every id."""
        if self.token_bias is None:
            return []
        listed = self.token_bias
        return [float(one) for one in (listed.tolist() if hasattr(listed, "tolist") else listed)]


def _biases(bias: list[float]) -> dict[str, Any]:
    denied = sum(1 for one in bias if one == -math.inf)
    by_id = {id: one for id, one in enumerate(bias) if one not in (0.0, -math.inf)}
    if denied * 2 > len(bias):
        allowed = [id for id, one in enumerate(bias) if one != -math.inf]
        return {"allowed_tokens": allowed, "logit_bias": by_id}
    banned = [id for id, one in enumerate(bias) if one == -math.inf]
    return {"banned_tokens": banned, "logit_bias": by_id}


class ExLlamaV2Sampler:
    """Chooses ids from logits, for programs that call `model.forward` themselves; `Settings` say how."""

    Settings = _Settings

    @staticmethod
    def sample(
        logits: Any,
        settings: _Settings,
        sequence_ids: Any,
        random: float,
        tokenizer: ExLlamaV2Tokenizer,
        prefix_token: Any = None,
        return_top_tokens: int = 0,
        blocked_tokens: Sequence[int] | None = None,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        sync: bool = False,
    ) -> tuple[Any, Any, Any, Any, bool]:
        """One id per row of logits, (rows, 1, vocabulary), behind `sequence_ids`; `random`, from 0 to 1,
        says where in the final distribution. Returns ids, (rows, 1), the best candidates and their
        probabilities, (rows, 1, n), the probabilities of the ids, and whether a filter has ended."""
        if len(logits.shape) != 3 or logits.shape[1] != 1:
            raise AssertionError("Logits tensor is incorrect shape, must be (bsz, 1, vocab_size)")
        if settings.mirostat:
            raise NotImplementedError("mirostat has a memory, which sample does not: use a generator")
        wanted = settings.to_engine()
        del wanted["recommended"], wanted["rng"]
        rows = [tensors.row_bytes(logits[row, 0]) for row in range(int(logits.shape[0]))]
        histories = tensors.as_rows(sequence_ids)
        if settings.cfg_scale is not None:
            if len(rows) != 2:
                raise AssertionError("CFG requires logits to be bsz 2")
            rows, histories = [_guided(rows, settings.cfg_scale)], histories[:1]
        if filters and len(rows) != 1:
            raise AssertionError("Filters not implemented for batch size > 1")
        allowed, ends = _allowed(filters or (), tokenizer, filter_prefer_eos)
        prefixes = None if prefix_token is None else tensors.as_rows(prefix_token)
        width = int(return_top_tokens)
        ids, shares, top = [], [], []
        for row, (data, history) in enumerate(zip(rows, histories)):
            only = allowed
            if prefixes is not None:
                bytes_of = tokenizer.native.token_bytes(prefixes[row][0])
                heals = tokenizer.native.ids_with_prefix(bytes_of)
                only = heals if only is None else sorted(set(only) & set(heals))
            denied = [int(id) for id in blocked_tokens or ()]
            id, share, best = _pagella.choose(
                tokenizer.native, wanted, data, history, float(random), only, denied, width
            )
            ids.append(id)
            shares.append(share)
            top.append(padded(best, width))
        n = len(ids)
        shape = (n, 1, width)
        return (
            tensors.numbers(ids, (n, 1), "int64"),
            tensors.numbers([[id for id, _ in row] for row in top], shape, "int64"),
            tensors.numbers([[p for _, p in row] for row in top], shape, "float32"),
            tensors.numbers(shares, (n, 1), "float32"),
            ids[0] in ends,
        )


def padded(top: list[tuple[int, float]], width: int) -> list[tuple[int, float]]:
    """So many candidates: where there were fewer, with unused ids of probability 0."""
    row = top[:width]
    used = {id for id, _ in row}
    unused = (id for id in range(2 * width) if id not in used)
    return row + [(next(unused), 0.0) for _ in range(width - len(row))]


def _guided(rows: list[bytes], scale: float) -> bytes:
    """Two rows of logits, mixed."""
    import numpy

    logs = []
    for row in rows:
        logits = numpy.frombuffer(row, dtype=numpy.float32).astype(numpy.float64)
        top = logits.max()
        logs.append(logits - top - numpy.log(numpy.exp(logits - top).sum()))
    mixed = scale * logs[0] + (1 - scale) * logs[1]
    return bytes(mixed.astype(numpy.float32).tobytes())


def _allowed(
    filters: Sequence[Any], tokenizer: ExLlamaV2Tokenizer, prefer_eos: bool
) -> tuple[list[int] | None, set[int]]:
    """What filters written in Python allow here, as they stand; their program feeds them."""
    passed: set[int] | None = None
    ends: set[int] = set()
    for one in filters:
        if hasattr(one, "to_engine"):
            raise NotImplementedError(
                f"{type(one).__name__} works in generators only: it is computed by the engine"
            )
        ids, ending = one.next()
        if ids is not None:
            here = {int(id) for id in ids}
            passed = here if passed is None else passed & here
            ends |= {int(id) for id in ending or ()}
    if passed is not None and not passed:
        raise AssertionError("Filter excluded all tokens")
    if prefer_eos and passed and tokenizer.eos_token_id in passed:
        passed = {tokenizer.eos_token_id}
    return None if passed is None else sorted(passed), ends
