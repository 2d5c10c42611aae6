"""`Engine`: an open model, with names that type checkers know."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from pagella import _pagella
from pagella._chat import Chat
from pagella._many import Prompt, generate
from pagella._progress import LoadBar

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from pagella._settings import Ids, Settings

__all__ = ["Engine", "inspect"]

_MODELS = Path(__file__).parent / "models"
#: Bundled models, and their folders below `models`.
_BUNDLED = {"demo": "demo", "demo-draft": "demo/draft"}

Cache = Literal["fp16", "q8", "q6", "q4", "fp8", "fp32"]


def _located(model: str | os.PathLike[str]) -> str:
    """The model, or where this package keeps it when it is a bundled one."""
    name = os.fspath(model)
    if name in _BUNDLED and not os.environ.get("PAGELLA_MODELS"):
        folder = _MODELS / _BUNDLED[name]
        if (folder / "config.json").is_file():
            return str(folder)
    return name


class Engine:
    """An open model. It can be used from any thread; whatever is asked for at the same time is computed
    together, and each gets the answer it would get alone."""

    def __init__(self, native: _pagella.Engine) -> None:
        self._native = native

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str] = "demo",
        *,
        device: str = "auto",
        gpu_split: Sequence[float] | None = None,
        reserve_vram: Sequence[float] | float | None = None,
        cpu_layers: int | Literal["auto"] | None = None,
        cache: Cache = "fp16",
        cache_tokens: int | None = None,
        context: int | None = None,
        draft: str | os.PathLike[str] | None = None,
        draft_cache: Cache | None = None,
        draft_tokens: int | Literal["auto"] | None = None,
        adapters: Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], float]] = (),
        threads: int | None = None,
        host_threads: int | None = None,
        math: Literal["exact", "wide"] | None = None,
        batch_max: int | None = None,
        queue_max: int | None = None,
        step_tokens: int | None = None,
        chunk_tokens: int | None = None,
        dequantised_max: int | None = None,
        low_memory: bool = False,
        defragment: bool = False,
        assume_llama: bool = False,
        reserve_all: bool = False,
        rope_scale: float | None = None,
        rope_alpha: float | None = None,
        rope_yarn: float | None = None,
        draft_rope_scale: float | None = None,
        draft_rope_alpha: float | None = None,
        progress: bool | Callable[[int, int, int, int], object] = False,
    ) -> Engine:
        """Opens a model: a directory, a hub id in the local cache, or `demo`.

        Everything has a default, and what cannot be had is an error with the remedy in its text.
        `device` may name several with their memory, such as `cpu:8GiB,cpu:4GiB`; `gpu_split` (GB) and
        `reserve_vram` (MB) have a number for each.
        `progress` draws a bar, or calls a function with modules done, modules, bytes done and bytes.
        """
        choices = {
            name: value
            for name, value in locals().items()
            if name not in ("cls", "model", "draft", "progress")
        }
        choices["draft"] = None if draft is None else _located(draft)
        if progress is True:
            with LoadBar() as bar:
                return cls(_pagella.Engine.open(_located(model), choices, bar.update))
        told = progress or None
        return cls(_pagella.Engine.open(_located(model), choices, told))

    def complete(self, prompt: Prompt, **settings: Unpack[Settings]) -> _pagella.Completion:
        """Answers one prompt: a text, a conversation (a list of messages), or token ids."""
        stream = self._native.submit_whole(prompt, _one(settings))[0]
        return stream.finish()

    def stream(self, prompt: Prompt, **settings: Unpack[Settings]) -> _pagella.Stream:
        """As `complete`, as it is written: an iterator of records, and an asynchronous one. Letting go
        of it stops the model."""
        return self._native.submit(prompt, _one(settings))[0]

    @overload
    def generate(  # type: ignore[overload-overlap]  # A text is no list of prompts.
        self,
        prompts: str,
        *,
        each: None = None,
        progress: bool = False,
        **settings: Unpack[Settings],
    ) -> _pagella.Completion: ...
    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        each: Iterable[Mapping[str, Any]] | None = None,
        progress: bool = False,
        **settings: Unpack[Settings],
    ) -> list[_pagella.Completion]: ...
    def generate(
        self,
        prompts: str | Iterable[Prompt],
        *,
        each: Iterable[Mapping[str, Any]] | None = None,
        progress: bool = False,
        **settings: Unpack[Settings],
    ) -> _pagella.Completion | list[_pagella.Completion]:
        """Answers one text, or any number of prompts at once, in their order.

        Settings are those of all prompts; `each` has one mapping per prompt, which counts before them.
        With `n`, a prompt has so many answers in a row. `progress` draws a bar. Prompts are taken as
        others finish, so there may be any number of them; the first that fails ends all of them.
        """
        common: Mapping[str, Any] = settings
        if isinstance(prompts, str):
            answers = list(generate(self._native, [prompts], common, None, progress))
            return answers[0] if settings.get("n", 1) == 1 else answers
        if isinstance(prompts, Sequence) and prompts and isinstance(prompts[0], (int, Mapping)):
            from pagella.errors import RequestError

            raise RequestError(
                "generate takes many prompts, and this is one conversation or one list of ids: "
                "use complete, or put it into a list"
            )
        return generate(self._native, prompts, common, each, progress)

    def chat(
        self,
        system: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> Chat:
        """A conversation that remembers its turns."""
        return Chat(self._native.chat(), system, tools, tool_choice, settings)

    def prompt_ids(self, prompt: Prompt, **settings: Unpack[Settings]) -> _pagella.Array:
        """A prompt as token ids, as the model would see it."""
        return self._native.prompt_ids(prompt, dict(settings))

    def embed(
        self, texts: Sequence[str | Ids], *, pooling: Literal["mean", "cls", "last"] = "mean"
    ) -> _pagella.Array:
        """One vector per text, `(texts, width)`, not normalised."""
        return self._native.embed(list(texts), pooling)

    def load_adapter(self, name: str, directory: str | os.PathLike[str]) -> _pagella.Adapter:
        """Loads an adapter, a directory as PEFT writes it, while everything else goes on."""
        return self._native.load_adapter(name, os.fspath(directory))

    def unload_adapter(self, name: str) -> bool:
        """Takes an adapter's name away; its memory is returned when nobody holds it any more."""
        return self._native.unload_adapter(name)

    def set_default_adapters(self, adapters: Sequence[tuple[_pagella.Adapter, float]]) -> None:
        """Gives these adapters, with their scales, to everything that names no others."""
        self._native.set_default_adapters(list(adapters))

    @property
    def adapters(self) -> list[_pagella.Adapter]:
        """All adapters that have a name."""
        return self._native.adapters()

    @property
    def facts(self) -> dict[str, Any]:
        """What is worth knowing about the model: family, device, capacity, cache, …"""
        return self._native.facts()

    @property
    def tokenizer(self) -> _pagella.Tokenizer:
        """The model's tokenizer."""
        return self._native.tokenizer()

    @property
    def default_sampling(self) -> dict[str, Any]:
        """The sampling settings that the model recommends, from which requests start."""
        return self._native.default_sampling()

    @property
    def fingerprint(self) -> str:
        """A short name of everything that decides results."""
        return self._native.fingerprint()

    def stats(self) -> dict[str, Any]:
        """Counts of pages, jobs and tokens, and speeds, now."""
        return self._native.stats()

    def page_map(self) -> str:
        """The cache, one character per page: `.` if nobody uses it, else the number of its users."""
        return self._native.page_map()

    def pages(self) -> list[dict[str, Any]]:
        """Every page of the cache, described."""
        return self._native.pages()

    def clear_cache(self) -> int:
        """Forgets the cached pages that nobody uses; returns how many."""
        return self._native.clear_cache()

    def warmup(self) -> None:
        """Writes a few tokens and forgets them, so that the first prompts find everything ready."""
        self._native.warmup()

    def save(self, path: str | os.PathLike[str], ids: Ids, salt: str | None = None) -> int:
        """Writes what the cache holds of a sequence to a file; returns its tokens."""
        return self._native.save(os.fspath(path), ids, salt)

    def restore(self, path: str | os.PathLike[str], salt: str | None = None) -> _pagella.Array:
        """Puts a saved sequence into the cache, where prompts that begin with it find it."""
        return self._native.restore(os.fspath(path), salt)

    def close(self) -> None:
        """Closes the model and returns its memory. Answers on their way are lost."""
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<pagella.Engine, closed>"
        facts = self.facts
        return f"<pagella.Engine {facts['dir']} on {facts['device']}>"


def _one(settings: Settings) -> dict[str, Any]:
    if settings.get("n", 1) != 1:
        from pagella.errors import RequestError

        raise RequestError(
            f"n={settings['n']} answers were asked for and this gives one: use generate"
        )
    return dict(settings)


def inspect(
    model: str | os.PathLike[str] = "demo",
    *,
    device: str = "auto",
    cache: Cache | None = None,
    context: int | None = None,
    draft: str | None = None,
    adapters: Sequence[str | os.PathLike[str]] = (),
) -> dict[str, Any]:
    """What a model is and what it needs, from its configuration and headers only."""
    flags = ["--device", device]
    for name, value in (("--cache", cache), ("--length", context)):
        if value is not None:
            flags += [name, str(value)]
    if draft is not None:
        flags += ["--draft", _located(draft)]
    for adapter in adapters:
        flags += ["--lora", os.fspath(adapter)]
    found: dict[str, Any] = _pagella.inspect(_located(model), flags)
    return found
