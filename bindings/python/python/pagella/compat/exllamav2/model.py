"""`ExLlamaV2`: a model that is loaded when its cache is known."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from pagella import _pagella
from pagella._engine import _located
from pagella._progress import LoadBar
from pagella.compat.exllamav2 import tensors
from pagella.compat.exllamav2.cache import ExLlamaV2CacheBase
from pagella.compat.exllamav2.config import ExLlamaV2Config
from pagella.compat.exllamav2.module import ExLlamaV2Module, modules

__all__ = ["ExLlamaV2"]

#: Tokens of a page: what is cached is found and shared in these.
PAGE = 256

#: What ExLlamaV2 and its users call a MB, in bytes.
MB = 1 << 20

#: Jobs that may wait: programs queue all they have.
_QUEUE_MAX = 1 << 20

Callback = Callable[[int, int], object]
Reports = Callable[[int, int], Iterable[Any]]


def _told(callback: Callback | None, callback_gen: Reports | None) -> Callback | None:
    """One function that tells both."""
    if callback is None and callback_gen is None:
        return None

    def tell(done: int, total: int) -> None:
        if callback is not None:
            callback(done, total)
        for _ in callback_gen(done, total) if callback_gen is not None else ():
            pass

    return tell


def _reported(
    load: Callable[..., None], callback: Callback | None, callback_gen: Reports | None
) -> Iterator[Any]:
    """Loads on a thread, and yields what is said of every module meanwhile."""
    reports: queue.SimpleQueue[tuple[int, int] | BaseException | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            load(callback=lambda done, total: reports.put((done, total)))
            reports.put(None)
        except BaseException as failure:
            reports.put(failure)

    threading.Thread(target=work, daemon=True).start()
    while (said := reports.get()) is not None:
        if isinstance(said, BaseException):
            raise said
        if callback is not None:
            callback(*said)
        if callback_gen is not None:
            yield from callback_gen(*said)
    yield None


class ExLlamaV2:
    """A model. `load`, `load_autosplit` or `load_tp` and a cache open it, in either order."""

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False) -> None:
        self.config = config
        self.loaded = False
        self.tp_context: object | None = None
        self._engine: _pagella.Engine | None = None
        #: What the engine was opened with.
        self._opened: dict[str, Any] | None = None
        #: How the model is cut over the devices: choices of the engine.
        self._split: dict[str, Any] = {}
        self._session: _pagella.Session | None = None
        self._session_format = "fp16"
        #: Which row of which cache the session holds.
        self._in_session: tuple[ExLlamaV2CacheBase, int] | None = None
        self._report: Callable[[int, int, int, int], object] | None = None
        self._bar = False

    def load(
        self,
        gpu_split: Sequence[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        progress: bool = False,
    ) -> None:
        """Loads the model when its cache is made. `gpu_split`: most GB that it may take of each device
        of the config, cache included."""
        self._begin(_told(callback, callback_gen), progress, gpu_split=gpu_split)

    def load_gen(
        self,
        gpu_split: Sequence[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
    ) -> Iterator[Any]:
        """As `load`; what `callback_gen` yields for every module is yielded."""
        return _reported(partial(self.load, gpu_split, lazy, stats), callback, callback_gen)

    def load_autosplit(
        self,
        cache: ExLlamaV2CacheBase,
        reserve_vram: int | Sequence[int] | None = None,
        last_id_only: bool = False,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        progress: bool = False,
    ) -> None:
        """Loads the model with this cache, over the devices of the config by what is free there.
        `reserve_vram`: bytes of each that stay free."""
        self._begin(_told(callback, callback_gen), progress, reserve_vram=reserve_vram)
        self.open(cache)

    def load_autosplit_gen(
        self,
        cache: ExLlamaV2CacheBase,
        reserve_vram: int | Sequence[int] | None = None,
        last_id_only: bool = False,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
    ) -> Iterator[Any]:
        """As `load_autosplit`; what `callback_gen` yields for every module is yielded."""
        load = partial(self.load_autosplit, cache, reserve_vram, last_id_only)
        return _reported(load, callback, callback_gen)

    def load_tp(
        self,
        gpu_split: Sequence[float] | None = None,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        progress: bool = False,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
    ) -> None:
        """As `load` on one device. Models are cut by layers and never within them, so several devices in
        `gpu_split` are refused."""
        if sum(1 for share in gpu_split or () if share) > 1:
            raise NotImplementedError(
                "tensor parallelism over several devices is not supported: call load or "
                "load_autosplit, which cut the model by layers"
            )
        self._begin(_told(callback, callback_gen), progress, gpu_split=gpu_split)
        self.tp_context = object()

    def load_tp_gen(
        self,
        gpu_split: Sequence[float] | None = None,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
    ) -> Iterator[Any]:
        """As `load_tp`; what `callback_gen` yields for every module is yielded."""
        return _reported(partial(self.load_tp, gpu_split), callback, callback_gen)

    def _begin(
        self,
        callback: Callback | None,
        progress: bool,
        gpu_split: Sequence[float] | None = None,
        reserve_vram: int | Sequence[int] | None = None,
    ) -> None:
        self._split = {}
        if any(gpu_split or ()):
            self._split["gpu_split"] = [float(share) for share in gpu_split or ()]
        if reserve_vram is not None:
            reserves = [reserve_vram] if isinstance(reserve_vram, int) else list(reserve_vram)
            self._split["reserve_vram"] = [reserve / MB for reserve in reserves]
        if callback is not None:
            told = callback

            def report(done: int, total: int, _bytes_done: int, _bytes: int) -> None:
                told(done, total)

            self._report = report
        self._bar = progress
        # What is wrong with the files is known before weights are read.
        _pagella.inspect(_located(self.config.model_dir or ""), [])
        self.loaded = True

    def cache_made(self, cache: ExLlamaV2CacheBase) -> None:
        """A cache that is not lazy was made: if the model waits for it, it is loaded now."""
        if self.loaded and self._engine is None:
            self.open(cache)

    def open(self, cache: ExLlamaV2CacheBase, **options: Any) -> _pagella.Engine:
        """The engine with this cache and these options; one that has them already is kept. Else the model
        is opened again with what both asked for, so that several generators can use it in turn."""
        if not self.loaded:
            raise AssertionError("Model is not loaded: call load, load_autosplit or load_tp first")
        # Rows of one cache are sequences of their own, which share the pages here.
        tokens = cache.batch_size * cache.max_seq_len
        choices = {
            **self.config.choices(),
            **self._split,
            "cache": cache.format,
            "cache_tokens": -(-tokens // PAGE) * PAGE,
            "queue_max": _QUEUE_MAX,
            **options,
        }
        wanted = {name: value for name, value in choices.items() if value is not None}
        engine = self._engine
        if engine is not None and not engine.closed:
            opened = self._opened or {}
            if all(name in opened and opened[name] == value for name, value in wanted.items()):
                return engine
            queue = engine.stats()["queue"]
            if queue["active"] + queue["pending"]:
                raise AssertionError(
                    "this generator wants the model opened in another way, and jobs of another generator "
                    "are running: make all generators first, or let the jobs end"
                )
            wanted = {**opened, **wanted}
        self._close()
        name = _located(self.config.model_dir or "")
        if self._bar and self._report is None:
            with LoadBar() as bar:
                engine = _pagella.Engine.open(name, wanted, bar.update)
        else:
            engine = _pagella.Engine.open(name, wanted, self._report)
        for warning in engine.facts()["warnings"]:
            print(f" -- Warning: {warning}", file=sys.stderr)
        self._engine, self._opened = engine, wanted
        return engine

    def forward(
        self,
        input_ids: Any,
        cache: ExLlamaV2CacheBase | None = None,
        input_mask: Any = None,
        preprocess_only: bool = False,
        last_id_only: bool = False,
        loras: Any = None,
        return_last_state: bool = False,
        position_offsets: Any = None,
        abort_event: Any = None,
        cpu_logits: bool = False,
    ) -> Any:
        """Logits of ids, (rows, n, vocabulary), behind what the cache holds. The first call loads the
        weights once more: what measures is not what generates. Rows are computed one after another."""
        refused = {"loras": loras, "return_last_state": return_last_state or None}
        for name, value in refused.items():
            if value is not None:
                raise NotImplementedError(f"{name} of forward is not supported: leave it out")
        if input_mask is not None and position_offsets is None:
            raise NotImplementedError(
                "input_mask of forward is supported with position_offsets only: encode with "
                "return_offsets=True"
            )
        rows = tensors.as_rows(input_ids)
        if isinstance(cache, (list, tuple)):
            raise NotImplementedError("forward takes one cache: call it for each")
        past = cache.current_seq_len if cache is not None else 0
        pads = [0] * len(rows)
        if past and cache is not None:
            pads = cache.pads
        elif position_offsets is not None:
            # What a row was padded with on its left, the mask hides.
            pads = [-offset[0] for offset in tensors.as_rows(position_offsets)]
        if cache is not None:
            self._check(cache, rows, past)
        session = self._measure(cache)
        found = []
        known: list[list[int]] = []
        for idx, (row, pad) in enumerate(zip(rows, pads)):
            held = cache.rows[idx][: max(past - pad, 0)] if past and cache is not None else []
            fresh = row if past else row[pad:]
            if cache is not None and held and self._in_session != (cache, idx):
                session.logits(held, 0, True)
            logits = session.logits(fresh, len(held), last_id_only or preprocess_only)
            self._in_session = None if cache is None else (cache, idx)
            known.append(held + fresh)
            if not preprocess_only:
                found.append(_padded(logits, len(row) if not last_id_only else 1))
        if cache is not None:
            cache.set_rows(known, pads)
        return None if preprocess_only else tensors.stacked(found)

    def _check(self, cache: ExLlamaV2CacheBase, rows: list[list[int]], past: int) -> None:
        if len(rows) > cache.batch_size or (past and len(rows) != len(cache.rows)):
            raise AssertionError(
                f"{len(rows)} sequences were given and the cache has "
                f"{len(cache.rows) if past else cache.batch_size}"
            )
        if past + len(rows[0]) > cache.max_seq_len:
            raise AssertionError("Total sequence length exceeds cache size in model.forward")

    def _measure(self, cache: ExLlamaV2CacheBase | None) -> _pagella.Session:
        if not self.loaded:
            raise AssertionError("Model is not loaded: call load, load_autosplit or load_tp first")
        if self._session is None:
            choices = {**self.config.choices(), **self._split}
            choices["cache"] = cache.format if cache is not None else "fp16"
            tokens = cache.max_seq_len if cache is not None else self.config.max_seq_len
            choices["cache_tokens"] = -(-tokens // PAGE) * PAGE
            self._session = _pagella.Session.open(_located(self.config.model_dir or ""), choices)
            self._session_format = choices["cache"]
        elif cache is not None and cache.format != self._session_format:
            self._session = self._in_session = None
            return self._measure(cache)
        return self._session

    @cached_property
    def modules(self) -> list[ExLlamaV2Module]:
        """What the model is made of, in the order it runs."""
        return modules(self)

    @property
    def modules_dict(self) -> dict[str, ExLlamaV2Module]:
        """The same by name."""
        return {one.key: one for one in self.modules}

    def is_quant(self) -> bool:
        """Whether any weight is quantised."""
        return not all(
            name.endswith((".weight", ".bias")) for name in self.config.tensor_file_map
        )

    def get_cache_devices(self) -> list[int]:
        """Where caches are: on one device."""
        return [0]

    def unload(self) -> None:
        """Returns the model's memory."""
        self._close()
        self._session = self._in_session = None
        self.loaded = False

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine, self._opened = None, None


def _padded(logits: _pagella.Array, n: int) -> Any:
    """Rows of logits as (1, n, vocabulary); columns of padding, on the left, are zeros."""
    found = tensors.floats(logits, (1, *logits.shape))
    missing = n - logits.shape[0]
    if missing <= 0:
        return found
    empty = tensors.numbers([0.0] * (missing * logits.shape[1]), (1, missing, logits.shape[1]), "float32")
    return tensors.joined(empty, found)
