"""`ExLlamaV2DynamicJob`: one request, and its records as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pagella import _pagella
from pagella.compat.exllamav2 import tensors
from pagella.compat.exllamav2.generator.filters.base import settings as filter_settings
from pagella.compat.exllamav2.generator.filters.stepper import Stepper
from pagella.compat.exllamav2.generator.sampler import ExLlamaV2Sampler, padded
from pagella.compat.exllamav2.model import PAGE
from pagella.compat.exllamav2.util import SeqTensor

if TYPE_CHECKING:
    from pagella.compat.exllamav2.generator.dynamic import ExLlamaV2DynamicGenerator

__all__ = ["ExLlamaV2DynamicJob"]

Result = dict[str, Any]


class ExLlamaV2DynamicJob:
    """One request. `generator.enqueue` starts it."""

    def __init__(
        self,
        input_ids: Any,
        max_new_tokens: int,
        min_new_tokens: int = 0,
        max_skips: int | None = 4,
        gen_settings: Any = None,
        seed: int | None = None,
        stop_conditions: Iterable[int | str] | None = None,
        decode_special_tokens: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        return_probs: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        token_healing: bool = False,
        identifier: object = None,
        banned_strings: Sequence[str] | None = None,
        embeddings: Sequence[Any] | None = None,
    ) -> None:
        if embeddings:
            raise NotImplementedError("embeddings of images are not supported")
        listed = input_ids if isinstance(input_ids, (list, tuple)) else [input_ids]
        if listed and isinstance(listed[0], int):
            listed = [listed]
        self._prompts = [tensors.as_list(one) for one in listed]
        if not self._prompts or not all(self._prompts):
            raise AssertionError("input_ids cannot be empty")
        self._written: list[int] = []
        #: Ids that are never chosen, besides those that the settings deny.
        self.denied: list[int] = []
        self.input_ids = input_ids
        self.max_new_tokens, self.min_new_tokens = max_new_tokens, min_new_tokens
        self.max_skips = max_skips
        self.gen_settings = gen_settings or ExLlamaV2Sampler.Settings()
        self.seed = seed
        self.decode_special_tokens = decode_special_tokens
        self.return_top_tokens = return_top_tokens
        self.return_logits, self.return_probs = return_logits, return_probs
        self.filters = list(filters or [])
        self.filter_prefer_eos = filter_prefer_eos
        self.token_healing = token_healing
        self.identifier = identifier
        self.banned_strings = list(banned_strings or [])
        self.stop_ids, self.stop_strings = _stops(stop_conditions)
        self.stop_tokens = set(self.stop_ids)
        self.generator: ExLlamaV2DynamicGenerator | None = None
        self.serial_number: int | None = None
        self.full_completion = ""
        self.new_tokens = 0
        self.is_finished = False
        self.drafts = False
        self.accepted_draft_tokens = self.rejected_draft_tokens = 0
        self.cached_pages = self.cached_tokens = 0
        self._stepper: Stepper | None = None

    @property
    def sequences(self) -> list[PromptSequence]:
        """Prompts, and prompts with what was written behind them."""
        return [PromptSequence(ids, self._written) for ids in self._prompts]

    @property
    def failure(self) -> Exception | None:
        """What a filter written in Python has raised."""
        return None if self._stepper is None else self._stepper.failure

    @property
    def num_sequences(self) -> int:
        """1, or 2 with a prompt to steer away from."""
        return len(self._prompts)

    def cancel(self) -> None:
        """Ends the job without a further result."""
        if self.generator is not None:
            self.generator.cancel(self)

    def check(self, cache_tokens: int, rows: int) -> None:
        """Refuses what can never start."""
        pages = cache_tokens // PAGE
        if len(self._prompts) > rows:
            raise AssertionError(
                f"Job requires a minimum batch size of {len(self._prompts)}. Max supported batch "
                f"size in generator is {rows}."
            )
        needed, known = 0, set()
        for ids in self._prompts:
            whole = (len(ids) - 1) // PAGE
            known |= {tuple(ids[: (page + 1) * PAGE]) for page in range(whole)}
            needed += -(-(len(ids) + self.max_new_tokens) // PAGE) - whole
        needed += len(known)
        if needed > pages:
            raise AssertionError(
                f"Job requires {needed} pages (only {pages} available) and cannot be enqueued. "
                f"Total cache allocated is {pages} * {PAGE} = {cache_tokens} tokens"
            )

    def request(self, vocab: int) -> tuple[list[int], dict[str, Any]]:
        """The prompt, and everything else as settings of a request."""
        filtered = filter_settings([*self.filters, *self.gen_settings.filters], vocab)
        self._stepper = filtered.get("allowed_next")
        wanted = {
            **self.gen_settings.to_engine(),
            **filtered,
            "max_tokens": self.max_new_tokens,
            "min_tokens": self.min_new_tokens,
            "max_skips": self.max_skips,
            "seed": self.seed,
            "default_stops": False,
            "stop_token_ids": self.stop_ids or None,
            "stop": self.stop_strings or None,
            "banned_strings": self.banned_strings or None,
            "show_special_tokens": self.decode_special_tokens,
            "top_tokens": self.return_top_tokens or None,
            "return_logits": self.return_logits,
            "probabilities": self.return_probs,
            "prefer_end": self.filter_prefer_eos,
            "length_policy": "error",
        }
        if self.denied:
            wanted["banned_tokens"] = [*wanted.get("banned_tokens", ()), *self.denied]
        prompt = self._prompts[0]
        if self.token_healing and all(len(ids) > 1 for ids in self._prompts):
            wanted["healing_ids"] = 1
        scale = self.gen_settings.cfg_scale
        if len(self._prompts) == 2:
            if scale is None:
                raise AssertionError("A job with two sequences needs gen_settings.cfg_scale")
            wanted.update(negative_ids=self._prompts[1], cfg_scale=scale)
        elif len(self._prompts) > 2:
            raise AssertionError(
                f"a job has one sequence, or two for CFG; {len(self._prompts)} were given"
            )
        elif scale is not None:
            raise AssertionError("cfg_scale needs two sequences: a prompt and a negative one")
        return prompt, wanted

    def result(self, record: _pagella.Record) -> Result:
        """A record as the dictionary that programs know."""
        found: Result = {"job": self, "stage": record.stage, "eos": record.eos}
        found["serial"] = self.serial_number
        if self.identifier is not None:
            found["identifier"] = self.identifier
        if record.stage == "prefill":
            found["curr_progress"] = record.curr_progress
            found["max_progress"] = record.max_progress
        if record.stage == "streaming":
            self._streaming(record, found)
        if record.done is not None:
            self._end(record.done, found)
        return found

    def _streaming(self, record: _pagella.Record, found: Result) -> None:
        text = record.text
        if text:
            found["text"] = text
            self.full_completion += text
        ids = record.token_ids
        n = len(ids)
        if n:
            self.new_tokens += n
            self._written += ids.tolist()
            found["token_ids"] = tensors.ids(ids)
            if self.return_probs:
                found["token_probs"] = tensors.numbers(record.token_probs, (1, n), "float32")
            if self.return_top_tokens:
                self._top(record, n, found)
            logits = record.logits
            if logits is not None:
                found["logits"] = tensors.floats(logits, (1, *logits.shape))
        if record.suppressed_text:
            found["suppressed_text"] = record.suppressed_text
            found["suppressed_tokens"] = tensors.ids(record.suppressed_tokens)

    def _top(self, record: _pagella.Record, n: int, found: Result) -> None:
        width = self.return_top_tokens
        rows = [padded(list(row), width) for row in record.top_tokens]
        shape = (1, n, width)
        found["top_k_tokens"] = tensors.numbers([[id for id, _ in r] for r in rows], shape, "int64")
        found["top_k_probs"] = tensors.numbers([[p for _, p in r] for r in rows], shape, "float32")

    def _end(self, done: _pagella.Completion, found: Result) -> None:
        self.is_finished = True
        told = done.to_dict()
        found["eos_reason"] = done.eos_reason
        for name in (
            "eos_triggering_token_id",
            "eos_triggering_token_str",
            "eos_triggering_string",
        ):
            if told.get(name) is not None:
                found[name] = told[name]
        found["full_completion"] = self.full_completion = done.text
        for name in (
            "new_tokens",
            "prompt_tokens",
            "time_enqueued",
            "time_prefill",
            "time_generate",
            "cached_pages",
            "cached_tokens",
        ):
            found[name] = told[name]
        self.new_tokens = told["new_tokens"]
        self.cached_pages, self.cached_tokens = told["cached_pages"], told["cached_tokens"]
        self.accepted_draft_tokens = done.accepted_draft_tokens
        self.rejected_draft_tokens = done.rejected_draft_tokens
        if self.drafts:
            found["accepted_draft_tokens"] = done.accepted_draft_tokens
            found["rejected_draft_tokens"] = done.rejected_draft_tokens
        held = {name: value for name, value in told["held"].items() if value}
        if "token_ids" in held:
            held["token_ids"] = tensors.ids(held["token_ids"])
        if held:
            found["held"] = held


class PromptSequence:
    """A prompt of a job: its ids, and those with what was written behind them."""

    def __init__(self, prompt: list[int], written: list[int]) -> None:
        self.input_ids = SeqTensor(prompt)
        self.sequence_ids = SeqTensor(prompt + written)


def _stops(conditions: Iterable[int | str] | None) -> tuple[list[int], list[str]]:
    ids: list[int] = []
    texts: list[str] = []
    for one in conditions or ():
        if isinstance(one, str):
            texts.append(one)
        elif hasattr(one, "__index__"):
            ids.append(int(one))
        elif one is not None:
            raise ValueError("Unsupported type in stop_conditions: give token ids and texts")
    return ids, texts
