"""Filters: what a text must look like. The engine computes masks of those it knows itself, beside the
model; those written in Python it calls (`stepper.py`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pagella.compat.exllamav2.generator.filters.stepper import Stepper

__all__ = [
    "ExLlamaV2ChoiceFilter",
    "ExLlamaV2Filter",
    "ExLlamaV2GrammarFilter",
    "ExLlamaV2JsonFilter",
    "ExLlamaV2PrefixFilter",
    "ExLlamaV2RegexFilter",
    "ExLlamaV2SelectFilter",
    "settings",
]


class ExLlamaV2Filter:
    """What a text must look like, token by token. A class of a program's own says it in `next`; the
    classes below say it to the engine, which is faster."""

    #: `next` may return lists.
    allow_return_type_list = True

    def __init__(self, model: Any = None, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.sequence_str = ""
        self.background_result: Any = None

    def clone(self, c: ExLlamaV2Filter | None = None) -> ExLlamaV2Filter:
        """A copy; a class with state of its own adds it."""
        copied = copy.copy(self) if c is None else c
        copied.model, copied.tokenizer = self.model, self.tokenizer
        copied.sequence_str = self.sequence_str
        return copied

    def begin(self, prefix_str: str) -> None:
        """A text begins."""
        raise NotImplementedError(f"{type(self).__name__} has no begin")

    def feed(self, token: Any) -> None:
        """An id was taken: a tensor, (1, 1)."""
        raise NotImplementedError(f"{type(self).__name__} has no feed")

    def next(self) -> tuple[Any, Any]:
        """Ids that may come next (`None`: all), and those of them that end the text."""
        raise NotImplementedError(f"{type(self).__name__} has no next")

    def use_background_worker(self) -> bool:
        """Whether `next` takes long. The engine asks beside the model in any case."""
        return False

    def can_mask_logits(self) -> bool:
        """Whether `mask_logits` does instead of `next`."""
        return False

    def prepare_logit_mask(self) -> bool:
        """Called before `mask_logits`."""
        raise NotImplementedError(f"{type(self).__name__} has no prepare_logit_mask")

    def mask_logits(self, logits: Any) -> Any:
        """The row with minus infinity for every id that may not come next."""
        raise NotImplementedError(f"{type(self).__name__} has no mask_logits")


class ExLlamaV2PrefixFilter(ExLlamaV2Filter):
    """The text begins with this string, or one of these."""

    def __init__(self, model: Any, tokenizer: Any, prefix_strings: str | Sequence[str]) -> None:
        super().__init__(model, tokenizer)
        single = isinstance(prefix_strings, str)
        self.prefix_strings = [prefix_strings] if single else list(prefix_strings)

    def to_engine(self) -> dict[str, Any]:
        return {"prefix": self.prefix_strings}


class ExLlamaV2SelectFilter(ExLlamaV2Filter):
    """The text is one of these options."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        options: Sequence[str],
        case_insensitive: bool = False,
    ) -> None:
        super().__init__(model, tokenizer)
        self.options, self.case_insensitive = list(options), case_insensitive

    def to_engine(self) -> dict[str, Any]:
        if not self.case_insensitive:
            return {"choice": self.options}
        import re

        return {"regex": "(?i:" + "|".join(re.escape(option) for option in self.options) + ")"}


#: The same under the name that the engine has for it.
ExLlamaV2ChoiceFilter = ExLlamaV2SelectFilter


class ExLlamaV2JsonFilter(ExLlamaV2Filter):
    """The text is JSON under a schema: a dictionary, a text, or a class of pydantic."""

    def __init__(self, model: Any, tokenizer: Any, schema: Mapping[str, Any] | str | type) -> None:
        super().__init__(model, tokenizer)
        self.schema = schema

    def to_engine(self) -> dict[str, Any]:
        return {"json_schema": self.schema}


class ExLlamaV2RegexFilter(ExLlamaV2Filter):
    """The text matches a regular expression as a whole."""

    def __init__(self, model: Any, tokenizer: Any, pattern: str) -> None:
        super().__init__(model, tokenizer)
        self.pattern = pattern

    def to_engine(self) -> dict[str, Any]:
        return {"regex": self.pattern}


class ExLlamaV2GrammarFilter(ExLlamaV2Filter):
    """The text follows a grammar, in the syntax of GBNF or Lark."""

    def __init__(self, model: Any, tokenizer: Any, grammar: str) -> None:
        super().__init__(model, tokenizer)
        self.grammar = grammar

    def to_engine(self) -> dict[str, Any]:
        return {"grammar": self.grammar}


def settings(filters: Sequence[Any] | None, vocab: int) -> dict[str, Any]:
    """Filters of a job as settings of a request. All of them hold."""
    found: dict[str, Any] = {}
    own = [one for one in filters or () if not hasattr(one, "to_engine")]
    for one in filters or ():
        for name, value in one.to_engine().items() if one not in own else ():
            if name in found:
                raise NotImplementedError(f"two filters of the same kind ({name}) cannot be combined")
            found[name] = value
    for one in own:
        if not hasattr(one, "next") or not hasattr(one, "feed"):
            raise TypeError(f"{type(one).__name__} is no filter: it needs begin, feed and next")
    if own:
        found["allowed_next"] = Stepper(own, vocab)
    return found
