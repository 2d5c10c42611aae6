"""`ExLlamaV2DynamicGeneratorAsync` and its jobs, for programs with an event loop. The engine computes
on a thread of its own, so nothing blocks the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pagella import _asyncio, _pagella
from pagella.compat.exllamav2.generator.dynamic import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
)
from pagella.errors import PagellaError

__all__ = ["ExLlamaV2DynamicGeneratorAsync", "ExLlamaV2DynamicJobAsync"]


class ExLlamaV2DynamicGeneratorAsync:
    """A dynamic generator whose jobs are read with `async for`; the same arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.generator = ExLlamaV2DynamicGenerator(*args, **kwargs)
        self.jobs: dict[int, ExLlamaV2DynamicJobAsync] = {}

    def num_remaining_jobs(self) -> int:
        """Jobs that have not ended."""
        return len(self.jobs)

    def set_loras(self, loras: Any) -> None:
        """Gives these adapters to all jobs from now on."""
        self.generator.set_loras(loras)

    async def cancel(self, job: ExLlamaV2DynamicJobAsync) -> None:
        """Ends a job."""
        await job.cancel()

    async def close(self) -> None:
        """Ends all jobs."""
        for job in list(self.jobs.values()):
            await job.cancel()


class ExLlamaV2DynamicJobAsync:
    """A job that is queued when it is made; `async for` reads its results."""

    def __init__(
        self, generator: ExLlamaV2DynamicGeneratorAsync, *args: Any, **kwargs: Any
    ) -> None:
        self.generator = generator
        self.job = ExLlamaV2DynamicJob(*args, **kwargs)
        self._stream = generator.generator.submit(self.job)
        self._records = _asyncio.records(self._stream)
        self.cancelled = False
        assert self.job.serial_number is not None
        self._serial = self.job.serial_number
        generator.jobs[self._serial] = self

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self._results()

    async def _results(self) -> AsyncIterator[dict[str, Any]]:
        try:
            async for record in self._checked():
                if self.cancelled:
                    return
                yield self.job.result(record)
                if record.eos:
                    return
        finally:
            self.generator.jobs.pop(self._serial, None)
            self._stream.close()

    async def _checked(self) -> AsyncIterator[_pagella.Record]:
        try:
            async for record in self._records:
                yield record
        except PagellaError as problem:
            raise problem from self.job.failure

    async def cancel(self) -> None:
        """Ends the job; whoever reads it comes to the end."""
        self.cancelled = True
        self._stream.cancel()
        self.generator.jobs.pop(self._serial, None)
