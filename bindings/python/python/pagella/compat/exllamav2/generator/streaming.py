"""`ExLlamaV2StreamingGenerator`: one text, piece by piece, on top of the dynamic generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pagella import _pagella
from pagella.compat.exllamav2 import tensors
from pagella.compat.exllamav2.generator.base import ExLlamaV2BaseGenerator, dynamic
from pagella.compat.exllamav2.generator.job import ExLlamaV2DynamicJob
from pagella.compat.exllamav2.model import PAGE

if TYPE_CHECKING:
    from pagella.compat.exllamav2.cache import ExLlamaV2CacheBase
    from pagella.compat.exllamav2.model import ExLlamaV2
    from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ExLlamaV2StreamingGenerator"]

#: Ids that are guessed at once where a text repeats itself.
_NGRAM_TOKENS = 4
#: Pieces that wait for a reader who has stopped, before the model does.
_WAITING_MAX = 8


class ExLlamaV2StreamingGenerator(ExLlamaV2BaseGenerator):
    """One text, piece by piece. What begins as the text before is not computed again."""

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        self.model, self.cache, self.tokenizer = model, cache, tokenizer
        self.sequence_ids: Any = None
        self.abort_event: Any = None
        self.draft_model, self.draft_cache = draft_model, draft_cache
        self.num_speculative_tokens = num_speculative_tokens
        self._draft: dict[str, Any] = {}
        if draft_model is not None:
            self._draft = {
                "draft_model": draft_model,
                "draft_cache": draft_cache,
                "num_draft_tokens": num_speculative_tokens,
            }
        self.dynamic = dynamic(model, cache, tokenizer, **self._draft)
        self.speculative_ngram = False
        # The engine finds by itself how far guesses pay.
        self.speculative_ngram_min, self.speculative_ngram_max = 1, 5
        self.speculative_ngram_threshold = 1
        self.speculative_prob_threshold = 0.25
        self._preloaded: list[int] = []
        self._banned: list[int] = []
        self._asked: dict[str, Any] = {}
        self._rows: list[list[int]] = []
        self._stop_conditions: list[int | str] = [*tokenizer.native.eos_ids]
        self._stream: _pagella.Stream | None = None
        self._job: ExLlamaV2DynamicJob | None = None
        self._ids: list[int] = []
        self._is_paused = False
        model.streaming.add(self)
        self.reset_sd_stats()

    def set_stop_conditions(self, stop_conditions: Iterable[int | str]) -> None:
        """Token ids and texts that end a text from now on."""
        listed = list(stop_conditions)
        if any(one == "" for one in listed):
            raise AssertionError("a stop condition must not be empty")
        self._stop_conditions = listed

    @property
    def stop_tokens(self) -> set[int]:
        """Token ids that end a text."""
        return {one for one in self._stop_conditions if not isinstance(one, str)}

    @property
    def stop_strings(self) -> set[str]:
        """Texts that end a text."""
        return {one for one in self._stop_conditions if isinstance(one, str)}

    def begin_stream(
        self,
        input_ids: Any,
        gen_settings: Any,
        token_healing: bool = False,
        loras: Any = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        abort_event: Any = None,
        **more: Any,
    ) -> None:
        """Begins a text behind these ids."""
        more.update(input_mask=input_mask, position_offsets=position_offsets)
        self.begin_stream_ex(
            input_ids, gen_settings, token_healing, loras, abort_event=abort_event, **more
        )

    def begin_stream_ex(
        self,
        input_ids: Any,
        gen_settings: Any,
        token_healing: bool = False,
        loras: Any = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: Any = None,
        input_embeddings: Any = None,
        decode_special_tokens: bool = False,
        banned_strings: Any = None,
        filters: Any = None,
        filter_prefer_eos: bool = False,
        seed: int | None = None,
    ) -> None:
        """Begins a text behind these ids."""
        if input_embeddings is not None:
            raise NotImplementedError("input_embeddings are not supported: give ids")
        if input_mask is not None and position_offsets is None:
            raise NotImplementedError(
                "input_mask is supported with position_offsets only: encode with return_offsets=True"
            )
        self._end()
        self._settle_draft()
        self.abort_event = abort_event
        rows = tensors.as_rows(input_ids)
        if position_offsets is not None:
            # What a row was padded with on its left, the mask hides.
            pads = [-offset[0] for offset in tensors.as_rows(position_offsets)]
            rows = [row[pad:] for row, pad in zip(rows, pads)]
        self._rows = rows
        self._asked = {
            "gen_settings": gen_settings,
            "token_healing": token_healing,
            "stop_conditions": self._stop_conditions,
            "return_probs": return_probabilities,
            "return_top_tokens": return_top_tokens,
            "return_logits": return_logits,
            "decode_special_tokens": decode_special_tokens,
            "banned_strings": banned_strings,
            "filters": filters,
            "filter_prefer_eos": filter_prefer_eos,
            "seed": seed,
        }
        self.dynamic.set_loras(loras)
        self._ids = list(rows[0])
        self.sequence_ids = tensors.ids(self._ids)
        self._banned = []
        self._begin()

    def _begin(self) -> None:
        """Begins, or goes on behind what was handed out, without the ids that are banned now."""
        written = self._ids[len(self._rows[0]) :]
        rows = [[*row, *written] for row in self._rows]
        capacity = min(self.model.config.max_seq_len, self.dynamic.max_total_tokens)
        room = (self.dynamic.max_total_tokens // len(rows)) // PAGE * PAGE
        left = min(capacity, room) - max(len(row) for row in rows)
        asked = dict(self._asked)
        if written:
            asked["token_healing"] = False
            if asked["seed"] is not None:
                # Else the draws of the beginning would come again.
                asked["seed"] += len(written)
        if asked["token_healing"]:
            # The healed id is written again, byte by byte at worst.
            left -= len(self.tokenizer.native.token_bytes(rows[0][-1]))
        self._job = ExLlamaV2DynamicJob(input_ids=rows, max_new_tokens=max(left, 1), **asked)
        self._job.denied = self._banned
        more: dict[str, Any] = {"backpressure": _WAITING_MAX}
        if self._preloaded and self.dynamic.num_draft_tokens:
            more["prediction"] = self._preloaded
        self._stream = self.dynamic.submit(self._job, **more)
        self._is_paused = False

    def pause(self) -> None:
        """Gives up what was written ahead, because the model is opened in another way; `stream` goes on
        behind what was handed out. A filter cannot start in the middle, so its text stays."""
        if self._stream is not None and not self._asked["filters"]:
            self._stream.close()
            self._is_paused = True

    def _ban(self, tokens: Iterable[int] | None) -> None:
        """From the next id on, these are banned. What the engine has written ahead is taken back."""
        banned = sorted({int(token) for token in tokens or () if token is not None})
        if banned == self._banned or self._stream is None:
            return
        if self._asked["filters"]:
            raise NotImplementedError("ban_tokens together with filters is not supported: use one")
        self._stream.close()
        self._banned = banned
        self._begin()

    def _settle_draft(self) -> None:
        """Guesses from the text itself are switched by an attribute."""
        if self.draft_model is None:
            self.dynamic.num_draft_tokens = _NGRAM_TOKENS if self.speculative_ngram else 0

    def stream(self) -> tuple[Any, ...]:
        """The next piece: its text, whether the text has ended, its ids; then probabilities and logits
        where they were asked for."""
        found = self.stream_ex()
        piece = [found["chunk"], found["eos"], found["chunk_token_ids"]]
        if self._asked.get("return_probs"):
            piece.append(found.get("probs", tensors.numbers([], (1, 0), "float32")))
        if self._asked.get("return_logits"):
            piece.append(found.get("logits"))
        return tuple(piece)

    def stream_ex(self, ban_tokens: Iterable[int] | None = None) -> dict[str, Any]:
        """The next piece as a dictionary. Ids in `ban_tokens` are not chosen for it."""
        if self._is_paused and self._stream is not None:
            self._begin()
        self._ban(ban_tokens)
        stream, job = self._stream, self._job
        if stream is None or job is None:
            raise AssertionError("begin_stream has not been called, or the text has ended")
        if self.abort_event is not None and self.abort_event.is_set():
            self._end()
            return {"chunk": "", "eos": True, "chunk_token_ids": tensors.ids([])}
        for record in stream:
            if record.stage == "streaming":
                break
        else:
            raise AssertionError("the text has ended: call begin_stream")
        result = job.result(record)
        found = {
            "chunk": result.get("text", ""),
            "eos": result["eos"],
            "chunk_token_ids": result.get("token_ids", tensors.ids([])),
        }
        names = {
            "token_probs": "probs",
            "top_k_tokens": "top_tokens",
            "top_k_probs": "top_probs",
            "logits": "logits",
            "suppressed_text": "suppressed",
            "eos_reason": "eos_reason",
        }
        found.update({own: result[name] for name, own in names.items() if name in result})
        self._ids += record.token_ids.tolist()
        self.sequence_ids = tensors.ids(self._ids)
        if result["eos"]:
            self._stream = None
        return found

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def reset_sd_stats(self) -> None:
        """Forgets how guesses fared."""
        self._before = self._counts()

    def _counts(self) -> tuple[int, int, int]:
        stats = self.dynamic.engine.stats()
        return stats["decode_tokens"], stats["draft"]["guessed"], stats["draft"]["accepted"]

    def get_sd_stats(self) -> tuple[float, float, int, int, int]:
        """How guesses fared: efficiency, accuracy, tokens, guesses, right ones. All of them are of what the
        engine has written, which is some tokens ahead of what was read."""
        tokens, guessed, accepted = (now - then for now, then in zip(self._counts(), self._before))
        efficiency = accepted / tokens if tokens else 0
        return efficiency, accepted / guessed if guessed else 0, tokens, guessed, accepted

    def ngram_preload(self, input_ids: Any) -> None:
        """Looks for guesses in these ids too, when `speculative_ngram` is on."""
        self._preloaded = tensors.as_list(input_ids)
