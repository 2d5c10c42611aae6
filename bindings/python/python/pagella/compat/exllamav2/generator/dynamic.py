"""`ExLlamaV2DynamicGenerator`: any number of jobs over one model.

The engine computes on a thread of its own; `iterate` hands over what it has said since. The rules that
programs know hold: they are sentences of this file.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pagella import _pagella
from pagella.compat.exllamav2.cache import ExLlamaV2Cache_8bit, ExLlamaV2CacheBase
from pagella.compat.exllamav2.generator.job import ExLlamaV2DynamicJob
from pagella.compat.exllamav2.lora import ExLlamaV2Lora, attached
from pagella.compat.exllamav2.model import PAGE, ExLlamaV2

if TYPE_CHECKING:
    from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ExLlamaV2DynamicGenerator", "ExLlamaV2DynamicJob"]

#: Seconds between two looks at an abort event.
_LOOK = 0.05


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


class ExLlamaV2DynamicGenerator:
    """Any number of jobs over one model. `allow_8bit_cache` lets it use a cache of FP8."""

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        max_batch_size: int | None = None,
        max_seq_len: int | None = None,
        max_chunk_size: int | None = None,
        max_q_size: int = 8,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_draft_tokens: int = 4,
        use_ngram_draft: bool = False,
        max_ngram: int = 4,
        max_sampling_threads: int = 16,
        min_sampling_threads: int = 3,
        paged: bool = True,
        filter_background_eval: bool = True,
        allow_8bit_cache: bool = False,
    ) -> None:
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        self.draft_model, self.draft_cache = draft_model, draft_cache
        self.page_size, self.paged = PAGE, paged
        self._check_cache(allow_8bit_cache)
        self._check_draft(num_draft_tokens, max_q_size, use_ngram_draft)
        if max_chunk_size is not None:
            _require(
                max_chunk_size % PAGE == 0,
                f"max_chunk_size must be multiple of {PAGE}, received {max_chunk_size}",
            )
        self.use_ngram_draft, self.max_ngram = use_ngram_draft, max_ngram
        self.max_chunk_size = max_chunk_size or model.config.max_input_len
        self.max_pages = cache.max_seq_len // PAGE
        self.max_total_tokens = cache.max_seq_len
        own = model.config.max_seq_len
        self.max_seq_len = max_seq_len or own
        _require(self.max_seq_len <= own, f"max_seq_len is {self.max_seq_len}, the model's is {own}")
        drafts = draft_model is not None or use_ngram_draft
        self.num_draft_tokens = num_draft_tokens if drafts else 0
        # Unpaged, one job runs at a time.
        rows = max_batch_size if paged else 2
        self._options = {
            "batch_max": rows,
            "chunk_tokens": max_chunk_size,
            # What the model was opened with says nothing new.
            **({} if self.max_seq_len == own else {"context": self.max_seq_len}),
            "host_threads": None if max_sampling_threads == 16 else max(1, max_sampling_threads),
            **self._draft_options(),
        }
        self.max_batch_size = rows or 256
        if draft_model is not None:
            # Its weights are read again beside the model's.
            draft_model._close()
        self._engine: _pagella.Engine | None = model.open(cache, **self._options)
        self.padded_vocab_size = -(-model.config.vocab_size // 32) * 32
        self._serials = itertools.count()
        self._jobs = _pagella.Jobs()
        #: What jobs have said and nobody was told yet.
        self._said: deque[tuple[int, _pagella.Record | BaseException]] = deque()
        self._all: dict[int, ExLlamaV2DynamicJob] = {}
        self._started: set[int] = set()
        self._loras: list[ExLlamaV2Lora] = []

    @property
    def engine(self) -> _pagella.Engine:
        """The open model. Another generator may have had it opened again."""
        if self._engine is None or self._engine.closed:
            self._engine = self.model.open(self.cache, **self._options)
        return self._engine

    def _check_cache(self, allow_8bit_cache: bool) -> None:
        cache = self.cache
        _require(
            cache.max_seq_len % PAGE == 0,
            f"cache.max_seq_len must be multiple of {PAGE}, received {cache.max_seq_len}",
        )
        _require(
            cache.batch_size == 1, "DynamicGenerator requires cache to have batch_size = 1"
        )
        is_8bit = isinstance(cache, ExLlamaV2Cache_8bit) or cache.format == "fp8"
        _require(
            allow_8bit_cache or not is_8bit,
            "Dynamic generator does not currently work with 8-bit cache. Use either FP16 or Q4, or "
            "give allow_8bit_cache=True: Pagella's cache of FP8 does work",
        )

    def _check_draft(self, num_draft_tokens: int, max_q_size: int, use_ngram_draft: bool) -> None:
        draft, cache = self.draft_model, self.draft_cache
        _require(draft is None or cache is not None, "Must supply cache for draft model")
        _require(draft is not None or cache is None, "Must supply draft model for draft cache")
        _require(
            (draft is None and not use_ngram_draft) or num_draft_tokens <= max_q_size,
            "num_draft_tokens cannot be larger than max_q_size.",
        )
        if draft is None or cache is None:
            return
        _require(
            not use_ngram_draft, "Cannot use both draft model and n-gram drafting: choose one"
        )
        _require(
            cache.max_seq_len == self.cache.max_seq_len,
            "Cache and draft cache must be same length",
        )
        _require(
            cache.batch_size == self.cache.batch_size,
            "Cache and draft cache must be same batch size",
        )
        _require(
            draft.config.max_seq_len >= self.model.config.max_seq_len,
            f"Draft model seq len {draft.config.max_seq_len} cannot be less than model seq len "
            f"{self.model.config.max_seq_len}: raise its max_seq_len, with scale_alpha_value",
        )

    def _draft_options(self) -> dict[str, Any]:
        if self.draft_model is None or self.draft_cache is None:
            return {}
        own = self.draft_model.config.choices()
        if own["rope_yarn"] is not None:
            raise NotImplementedError("yarn_rope_factor of a draft model is not supported")
        return {
            "draft": self.draft_model.config.model_dir,
            "draft_cache": self.draft_cache.format,
            "draft_rope_scale": own["rope_scale"],
            "draft_rope_alpha": own["rope_alpha"],
        }

    def warmup(self) -> None:
        """Writes a few tokens and forgets them."""
        self.engine.warmup()

    def submit(self, job: ExLlamaV2DynamicJob, **more: Any) -> _pagella.Stream:
        """Hands a job to the engine, with further settings."""
        job.check(self.max_total_tokens, self.max_batch_size)
        prompt, settings = job.request(self.padded_vocab_size)
        job.serial_number = next(self._serials)
        job.generator = self
        job.drafts = self.num_draft_tokens > 0
        # Another generator of this model may have guesses.
        settings["draft_tokens"] = self.num_draft_tokens
        return self.engine.submit(prompt, {**settings, **more})[0]

    def enqueue(self, job: Any) -> Any:
        """Queues a job, or several; returns its number, or theirs."""
        if isinstance(job, (list, tuple)):
            return [self.enqueue(one) for one in job]
        stream = self.submit(job)
        serial: int = job.serial_number
        self._all[serial] = job
        self._jobs.add(serial, stream)
        return serial

    def iterate(self) -> list[dict[str, Any]]:
        """What jobs have said since the last call; waits until one says something. Empty when there
        is no job."""
        return self._next(None)

    def _next(self, timeout: float | None) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        if not self._said:
            self._said.extend(self._jobs.next(timeout))
        while self._said:
            serial, said = self._said[0]
            job = self._all.get(serial)
            if isinstance(said, BaseException) and job is not None and results:
                # What others have said is not lost for it.
                return results
            self._said.popleft()
            if job is None:
                continue
            if isinstance(said, BaseException):
                self._forget(serial)
                raise said from job.failure
            self._started.add(serial)
            results.append(job.result(said))
            if said.eos:
                self._forget(serial)
        return results

    def _forget(self, serial: int) -> None:
        self._all.pop(serial, None)
        self._started.discard(serial)

    def cancel(self, job: ExLlamaV2DynamicJob) -> None:
        """Ends a job without a further result."""
        if job.serial_number is not None:
            self._jobs.remove(job.serial_number)
            self._forget(job.serial_number)

    def clear_queue(self) -> None:
        """Ends all jobs."""
        for job in list(self._all.values()):
            self.cancel(job)

    def num_remaining_jobs(self) -> int:
        """Jobs that have not ended."""
        return len(self._all)

    @property
    def pending_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Jobs that have not said anything yet."""
        return [job for serial, job in self._all.items() if serial not in self._started]

    @property
    def active_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """Jobs that have started."""
        return [job for serial, job in self._all.items() if serial in self._started]

    @property
    def all_pages(self) -> list[SimpleNamespace]:
        """The pages of the cache as they are now."""
        return [
            SimpleNamespace(
                page_index=page["index"],
                ref_count=page["refs"],
                phash=None if page["key"] is None else bytes.fromhex(page["key"]),
                kv_position=page["fill"],
                access_serial=page["stamp"],
            )
            for page in self.engine.pages()
        ]

    @property
    def referenced_pages(self) -> dict[Any, SimpleNamespace]:
        """The pages that jobs use."""
        return {page.phash or page.page_index: page for page in self.all_pages if page.ref_count}

    @property
    def unreferenced_pages(self) -> dict[Any, SimpleNamespace]:
        """The pages that no job uses."""
        return {page.phash or page.page_index: page for page in self.all_pages if not page.ref_count}

    def set_loras(self, loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None) -> None:
        """Gives these adapters to all jobs from now on; `None` takes them away."""
        self.engine.set_default_adapters(attached(self.engine, loras))
        listed = loras if isinstance(loras, list) else [loras]
        self._loras = [lora for lora in listed if lora is not None]

    @property
    def current_loras(self) -> list[ExLlamaV2Lora]:
        """The adapters of all jobs from now on."""
        return list(self._loras)

    def reset_page_table(self) -> None:
        """Forgets the cached pages that no job uses."""
        self.engine.clear_cache()

    def defrag_cache(self) -> None:
        """Does nothing: results do not depend on the order of pages, nor does speed."""

    def validate_cache(self) -> None:
        """Does nothing: the engine checks its pages itself."""

    def print_page_list(self, short: bool = True) -> None:
        """Prints the cache: one character per page, or one line."""
        if short:
            print(self.engine.page_map())
            return
        for page in self.engine.pages():
            print(page["line"])

    def generate(
        self,
        prompt: Any,
        max_new_tokens: int,
        min_new_tokens: int = 0,
        seed: int | None = None,
        gen_settings: Any = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        stop_conditions: Sequence[int | str] | None = None,
        add_bos: bool = False,
        abort_event: Any = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        return_last_results: bool = False,
        embeddings: Sequence[Any] | None = None,
        banned_strings: Sequence[str] | None = None,
    ) -> Any:
        """Continues a text, or a pair of a text and one to steer away from, or a list of these."""
        single = not isinstance(prompt, list)
        prompts = [prompt] if single else prompt
        each_settings = _per_prompt(gen_settings, len(prompts), "gen_settings")
        each_filters = [filters] if single else _per_prompt(filters, len(prompts), "filters")

        def encode(text: str) -> list[int]:
            return self.tokenizer.ids(text, encode_special_tokens, add_bos)

        own = _Own(self)
        for idx, one in enumerate(prompts):
            pair = one if isinstance(one, tuple) else (one,)
            job = ExLlamaV2DynamicJob(
                input_ids=[encode(text) for text in pair],
                max_new_tokens=max_new_tokens,
                min_new_tokens=min_new_tokens,
                seed=None if seed is None else seed + idx,
                gen_settings=each_settings[idx],
                token_healing=token_healing,
                decode_special_tokens=decode_special_tokens,
                stop_conditions=stop_conditions,
                filters=each_filters[idx],
                filter_prefer_eos=filter_prefer_eos,
                banned_strings=banned_strings,
                embeddings=embeddings,
                identifier=idx,
            )
            own.add(idx, job)
        last = own.finish(abort_event)
        if last is None:
            return None
        heads = ["" if completion_only else _positive(one) for one in prompts]
        texts = [head + result["full_completion"] for head, result in zip(heads, last)]
        if return_last_results:
            return (texts[0], last[0]) if single else (texts, last)
        return texts[0] if single else texts


class _Own:
    """The jobs of one call of `generate`, which may run beside others."""

    def __init__(self, generator: ExLlamaV2DynamicGenerator) -> None:
        self._generator = generator
        self._jobs = _pagella.Jobs()
        self._all: list[ExLlamaV2DynamicJob] = []

    def add(self, idx: int, job: ExLlamaV2DynamicJob) -> None:
        """Queues a job."""
        self._jobs.add(idx, self._generator.submit(job))
        self._all.append(job)

    def finish(self, abort_event: Any) -> list[dict[str, Any]] | None:
        """Last results in order; `None` when the event was set before."""
        try:
            return self._finish(abort_event)
        finally:
            # A job goes on while somebody holds it, which the trace of an exception does.
            self._jobs.close()

    def _finish(self, abort_event: Any) -> list[dict[str, Any]] | None:
        last: dict[int, dict[str, Any]] = {}
        while len(self._jobs):
            if abort_event is not None and abort_event.is_set():
                return None
            for idx, said in self._jobs.next(None if abort_event is None else _LOOK):
                if isinstance(said, BaseException):
                    raise said from self._all[idx].failure
                if said.eos:
                    last[idx] = self._all[idx].result(said)
        return [last[idx] for idx in range(len(self._all))]


def _positive(prompt: Any) -> str:
    return str(prompt[0] if isinstance(prompt, tuple) else prompt)


def _per_prompt(values: Any, n: int, what: str) -> list[Any]:
    """One value for all prompts, or one for each."""
    if not isinstance(values, (list, tuple)):
        return [values] * n
    _require(len(values) == n, f"{what}: {len(values)} were given for {n} prompts")
    return list(values)
