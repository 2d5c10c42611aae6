"""Many prompts at once, bounded however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from pagella import _pagella
from pagella._progress import Bar
from pagella.errors import BusyError, RequestError

if TYPE_CHECKING:
    from pagella._settings import Ids

__all__ = ["Prompt", "generate"]

#: A text, a conversation, or token ids.
Prompt = Union[str, Sequence[Mapping[str, Any]], "Ids"]

#: Answers that the engine has at a time: enough to fill the largest step twice.
_JOBS_MAX = 512


def _paired(
    prompts: Iterable[Prompt], each: Iterable[Mapping[str, Any]] | None
) -> Iterator[tuple[Prompt, Mapping[str, Any]]]:
    """Prompts with their own settings, of which there must be as many."""
    if each is None:
        yield from ((prompt, {}) for prompt in prompts)
        return
    own = iter(each)
    for n, prompt in enumerate(prompts):
        settings = next(own, None)
        if settings is None:
            raise RequestError(f"`each` has settings for {n} prompts and there are more")
        yield prompt, settings
    if next(own, None) is not None:
        raise RequestError("`each` has settings for more prompts than there are")


def generate(
    engine: _pagella.Engine,
    prompts: Iterable[Prompt],
    common: Mapping[str, Any],
    each: Iterable[Mapping[str, Any]] | None,
    progress: bool,
) -> list[_pagella.Completion]:
    """Answers prompts in their order."""
    total = len(prompts) if isinstance(prompts, Sequence) else None
    jobs = _pagella.Jobs()
    try:
        return _answers(engine, jobs, _paired(prompts, each), common, Bar(total, "prompts", shown=progress))
    finally:
        # Answers go on while somebody holds them, which the trace of an exception does.
        jobs.close()


def _answers(
    engine: _pagella.Engine,
    jobs: _pagella.Jobs,
    waiting: Iterator[tuple[Prompt, Mapping[str, Any]]],
    common: Mapping[str, Any],
    shown: Bar,
) -> list[_pagella.Completion]:
    answers: list[_pagella.Completion | None] = []
    held: tuple[Prompt, Mapping[str, Any]] | None = None
    with shown as bar:
        while True:
            while len(jobs) < _JOBS_MAX:
                held = held or next(waiting, None)
                if held is None:
                    break
                prompt, own = held
                try:
                    streams = engine.submit_whole(prompt, {**common, **own})
                except BusyError:
                    # There will be room when a job of ours has ended.
                    if not len(jobs):
                        raise
                    break
                held = None
                for stream in streams:
                    jobs.add(len(answers), stream)
                    answers.append(None)
            if not len(jobs):
                break
            for key, said in jobs.next():
                if isinstance(said, BaseException):
                    raise said
                if said.done is not None:
                    answers[key] = said.done
                    bar.add(1, said.done.new_tokens)
    return [answer for answer in answers if answer is not None]
