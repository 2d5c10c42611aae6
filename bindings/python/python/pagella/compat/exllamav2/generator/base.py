"""`ExLlamaV2BaseGenerator`: whole texts, on top of the dynamic generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagella.compat.exllamav2.generator.filters.base import ExLlamaV2Filter
from pagella.compat.exllamav2.generator.dynamic import ExLlamaV2DynamicGenerator
from pagella.compat.exllamav2.generator.job import ExLlamaV2DynamicJob
from pagella.compat.exllamav2.generator.sampler import ExLlamaV2Sampler
from pagella.compat.exllamav2.model import PAGE

if TYPE_CHECKING:
    from pagella.compat.exllamav2.cache import ExLlamaV2CacheBase
    from pagella.compat.exllamav2.model import ExLlamaV2
    from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ExLlamaV2BaseGenerator", "ExLlamaV2Filter", "dynamic"]


class _Paged:
    """A cache of any batch size and length, as the dynamic generator wants it."""

    def __init__(self, cache: ExLlamaV2CacheBase) -> None:
        tokens = cache.batch_size * cache.max_seq_len
        self.format, self.batch_size = cache.format, 1
        self.max_seq_len = -(-tokens // PAGE) * PAGE


def dynamic(
    model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer, **options: Any
) -> ExLlamaV2DynamicGenerator:
    """A dynamic generator over any cache."""
    paged: Any = _Paged(cache)
    return ExLlamaV2DynamicGenerator(model, paged, tokenizer, allow_8bit_cache=True, **options)


class ExLlamaV2BaseGenerator:
    """Whole texts."""

    def __init__(
        self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer
    ) -> None:
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        self.dynamic = dynamic(model, cache, tokenizer)
        self.sequence_ids: Any = None
        self.abort_event: Any = None

    def warmup(self) -> None:
        """Writes a few tokens and forgets them."""
        self.dynamic.warmup()

    def full(self) -> bool:
        """Whether the sequence fills the cache."""
        length = 0 if self.sequence_ids is None else self.sequence_ids.shape[-1]
        return bool(length >= self.model.config.max_seq_len)

    def generate_simple(
        self,
        prompt: str | Sequence[str],
        gen_settings: Any = None,
        num_tokens: int = 128,
        seed: int | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        loras: Any = None,
        stop_token: int | list[int] | None = -1,
        add_bos: bool = False,
        abort_event: Any = None,
        input_embeddings: Any = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
    ) -> Any:
        """Continues a text, or a list of texts, by at most `num_tokens`. -1 as `stop_token` is the
        model's own end, `None` none at all. A prompt that leaves no room loses its beginning."""
        if input_embeddings is not None:
            raise NotImplementedError("input_embeddings are not supported: give a text")
        self.abort_event = abort_event
        single = isinstance(prompt, str)
        prompts: list[str] = [prompt] if isinstance(prompt, str) else list(prompt)
        if len(prompts) > self.cache.batch_size:
            raise AssertionError(
                f"{len(prompts)} prompts were given and the cache has batch_size = "
                f"{self.cache.batch_size}"
            )
        self.dynamic.set_loras(loras)
        stops = self._stops(stop_token)
        room = self.cache.max_seq_len - num_tokens
        if room < 1:
            raise AssertionError(
                f"num_tokens is {num_tokens} and the cache holds {self.cache.max_seq_len} tokens"
            )
        settings = gen_settings or ExLlamaV2Sampler.Settings()
        heads, rows = [], []
        for text in prompts:
            ids = self.tokenizer.ids(text, encode_special_tokens, add_bos)
            rows.append(ids[-room:])
            heads.append(text if rows[-1] == ids else self.tokenizer.native.decode(rows[-1]))
        # With guidance, both prompts go on with the same text.
        sequences = [rows] if settings.cfg_scale is not None else [[row] for row in rows]
        jobs = []
        for idx, pair in enumerate(sequences):
            job = ExLlamaV2DynamicJob(
                input_ids=pair,
                max_new_tokens=num_tokens,
                seed=None if seed is None else seed + idx,
                gen_settings=settings,
                token_healing=token_healing,
                decode_special_tokens=decode_special_tokens,
                stop_conditions=stops,
                filters=filters,
                filter_prefer_eos=filter_prefer_eos,
            )
            jobs.append(job)
        self.dynamic.enqueue(jobs)
        try:
            while self.dynamic.num_remaining_jobs():
                if abort_event is not None and abort_event.is_set():
                    break
                self.dynamic.iterate()
        finally:
            self.dynamic.clear_queue()
        texts = [
            ("" if completion_only else head) + job.full_completion
            for head, job in zip(heads, jobs * (len(heads) // max(len(jobs), 1)))
        ]
        return texts[0] if single else texts

    def _stops(self, stop_token: int | list[int] | None) -> list[int]:
        if stop_token is None:
            return []
        if isinstance(stop_token, int) and stop_token >= 0:
            return [stop_token]
        if isinstance(stop_token, list):
            return stop_token
        return list(self.tokenizer.native.eos_ids)
