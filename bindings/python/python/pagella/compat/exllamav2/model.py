"""`ExLlamaV2`: a model that is loaded when its cache is known."""

from __future__ import annotations

import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pagella import _pagella
from pagella._engine import _located
from pagella._progress import LoadBar
from pagella.compat.exllamav2 import tensors
from pagella.compat.exllamav2.cache import ExLlamaV2CacheBase
from pagella.compat.exllamav2.config import ExLlamaV2Config
from pagella.compat.exllamav2.module import ExLlamaV2Module, modules
from pagella.errors import OutOfMemoryError

if TYPE_CHECKING:
    from pagella.compat.exllamav2.generator.streaming import ExLlamaV2StreamingGenerator

__all__ = ["ExLlamaV2"]

#: Tokens of a page: what is cached is found and shared in these.
PAGE = 256

#: What ExLlamaV2 and its users call a MB, in bytes.
MB = 1 << 20

#: What is added to a score to hide an id: minus infinity, or the least number that there is.
_HIDDEN = -1e4

#: Jobs that may wait: programs queue all they have.
_QUEUE_MAX = 1 << 20

Callback = Callable[[int, int], object]
Reports = Callable[[int, int], Iterable[Any]]


def _shares(gpu_split: Sequence[float] | str | None) -> list[float]:
    """GB per device; nothing is said by `None` and by `"auto"`."""
    if gpu_split is None or gpu_split == "auto":
        return []
    if isinstance(gpu_split, str):
        raise ValueError(f'gpu_split is {gpu_split!r}: give a list of GB, one per device, or "auto"')
    return [float(share) for share in gpu_split]


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
        #: For how many further devices there were shares.
        self._left_out = 0
        #: Generators whose text may be written on later, by another engine.
        self.streaming: weakref.WeakSet[ExLlamaV2StreamingGenerator] = weakref.WeakSet()
        self._session: _pagella.Session | None = None
        self._session_format = "fp16"
        #: Which row of which cache the session holds.
        self._in_session: tuple[ExLlamaV2CacheBase, int] | None = None
        self._report: Callable[[int, int, int, int], object] | None = None
        self._bar = False

    def load(
        self,
        gpu_split: Sequence[float] | str | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        progress: bool = False,
    ) -> None:
        """Loads the model when its cache is made. `gpu_split`: most GB that it may take of each device,
        cache included. Devices are filled in their order, and the model runs on one: it has to fit there."""
        self._begin(_told(callback, callback_gen), progress, gpu_split=gpu_split)

    def load_gen(
        self,
        gpu_split: Sequence[float] | str | None = None,
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
        """Loads the model with this cache. `reserve_vram`: bytes of each device that stay free."""
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
        gpu_split: Sequence[float] | str | None = None,
        callback: Callback | None = None,
        callback_gen: Reports | None = None,
        progress: bool = False,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
    ) -> None:
        """As `load` where there is one device, which then has the whole of every tensor. On a machine with
        several that are asked for it is refused."""
        devices = _pagella.devices()
        shares = _shares(gpu_split)
        if len(devices) > 1 and sum(1 for share in shares or devices if share) > 1:
            raise NotImplementedError(
                f"tensor parallelism over several devices ({', '.join(devices)}) is not supported: let the "
                "program see one, with CUDA_VISIBLE_DEVICES=0, or call load_autosplit"
            )
        self._begin(_told(callback, callback_gen), progress, gpu_split=gpu_split)
        self.tp_context = object()

    def load_tp_gen(
        self,
        gpu_split: Sequence[float] | str | None = None,
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
        gpu_split: Sequence[float] | str | None = None,
        reserve_vram: int | Sequence[int] | None = None,
    ) -> None:
        self._split, self._left_out = {}, 0
        shares = _shares(gpu_split)
        if any(shares):
            first = next(idx for idx, share in enumerate(shares) if share)
            devices = _pagella.devices()
            if first >= len(devices):
                raise AssertionError(
                    f"gpu_split leaves out the first {first} devices, and there is only {', '.join(devices)}"
                )
            # What is meant for further devices is not wanted while the model fits on the first.
            self._split.update(device=devices[first], gpu_split=[shares[first]])
            self._left_out = sum(1 for share in shares[first + 1 :] if share)
        if reserve_vram is not None:
            # What is meant for further devices is about memory that the model does not take.
            reserves = [reserve_vram] if isinstance(reserve_vram, int) else list(reserve_vram)
            self._split["reserve_vram"] = [reserve / MB for reserve in reserves[:1]]
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
            for generator in list(self.streaming):
                generator.pause()
            queue = engine.stats()["queue"]
            if queue["active"] + queue["pending"]:
                raise AssertionError(
                    "this generator wants the model opened in another way, and jobs of another generator "
                    "are running: make all generators first, or let the jobs end"
                )
            wanted = {**opened, **wanted}
        self._close()
        name = _located(self.config.model_dir or "")
        try:
            if self._bar and self._report is None:
                with LoadBar() as bar:
                    engine = _pagella.Engine.open(name, wanted, bar.update)
            else:
                engine = _pagella.Engine.open(name, wanted, self._report)
        except OutOfMemoryError as problem:
            if not self._left_out:
                raise
            raise OutOfMemoryError(
                f"{problem}. The first share of gpu_split counts, because a model runs on one device today: "
                f"the other {self._left_out} cannot be used"
            ) from problem
        for warning in engine.facts()["warnings"]:
            print(f" -- Warning: {warning}", file=sys.stderr)
        self._engine, self._opened = engine, wanted
        return engine

    def forward(
        self,
        input_ids: Any,
        cache: ExLlamaV2CacheBase | Sequence[ExLlamaV2CacheBase] | None = None,
        input_mask: Any = None,
        preprocess_only: bool = False,
        last_id_only: bool = False,
        loras: Any = None,
        return_last_state: bool = False,
        position_offsets: Any = None,
        abort_event: Any = None,
        cpu_logits: bool = False,
        indexed_embeddings: Any = None,
    ) -> Any:
        """Logits of ids, (rows, n, vocabulary), behind what the cache holds; several caches are one per
        row. The first call loads the weights once more: what measures is not what generates. Rows are
        computed one after another."""
        refused = {
            "loras": loras,
            "return_last_state": return_last_state,
            "indexed_embeddings": indexed_embeddings,
        }
        for name, value in refused.items():
            if value:
                raise NotImplementedError(f"{name} of forward is not supported: leave it out")
        rows = tensors.as_rows(input_ids)
        pads = _pads(rows, input_mask, position_offsets)
        if cache is not None and not isinstance(cache, ExLlamaV2CacheBase):
            if len(cache) != len(rows):
                raise AssertionError(f"{len(rows)} sequences were given and {len(cache)} caches")
            each = [
                self._rows([row], [pad], one, preprocess_only, last_id_only)
                for row, pad, one in zip(rows, pads, cache)
            ]
            return None if preprocess_only else tensors.stacked(each)
        return self._rows(rows, pads, cache, preprocess_only, last_id_only)

    def _rows(
        self,
        rows: list[list[int]],
        pads: list[int],
        cache: ExLlamaV2CacheBase | None,
        preprocess_only: bool,
        last_id_only: bool,
    ) -> Any:
        """Logits of rows that share a cache, or have none."""
        past = cache.current_seq_len if cache is not None else 0
        if past and cache is not None:
            pads = cache.pads
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


def _pads(rows: list[list[int]], mask: Any, offsets: Any) -> list[int]:
    """With how many ids each row was padded on its left: the mask hides these."""
    if offsets is not None:
        return [-offset for row in tensors.as_rows(offsets) for offset in row]
    if mask is None:
        return [0] * len(rows)
    # What a token sees of others depends on how far they are, not on where both stand.
    pads = []
    for row in mask.tolist() if hasattr(mask, "tolist") else mask:
        hidden = [value < _HIDDEN for value in row]
        pads.append(hidden.index(False) if False in hidden else len(hidden))
        if any(hidden[pads[-1] :]):
            raise NotImplementedError(
                "input_mask may hide what rows were padded with on their left, and nothing else"
            )
    return pads if len(pads) == len(rows) else pads[:1] * len(rows)


def _padded(logits: _pagella.Array, n: int) -> Any:
    """Rows of logits as (1, n, vocabulary); columns of padding, on the left, are zeros."""
    found = tensors.floats(logits, (1, *logits.shape))
    missing = n - logits.shape[0]
    if missing <= 0:
        return found
    empty = tensors.numbers([0.0] * (missing * logits.shape[1]), (1, missing, logits.shape[1]), "float32")
    return tensors.joined(empty, found)
