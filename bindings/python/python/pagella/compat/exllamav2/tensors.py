"""Tensors for programs that expect them: torch's where torch is installed, else NumPy's with the few
methods such programs use.

The choice is made once, when the first tensor is needed. `PAGELLA_TENSORS=numpy` does without torch.
"""

from __future__ import annotations

import builtins
import importlib.util
import math
import os
from functools import lru_cache
from typing import Any

__all__ = ["as_list", "as_rows", "floats", "ids", "is_torch", "joined", "numbers", "row_bytes", "stacked"]


@lru_cache(maxsize=None)
def is_torch() -> bool:
    """Whether tensors are torch's."""
    if os.environ.get("PAGELLA_TENSORS") == "numpy":
        return False
    return importlib.util.find_spec("torch") is not None


class _Size(int):
    """A count for NumPy, which programs for torch call."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> _Size:
        """Of an array of this shape."""
        made = super().__new__(cls, math.prod(shape))
        made.shape = shape
        return made

    def __call__(self, axis: int | None = None) -> Any:
        """The length of an axis, or of every one."""
        return self.shape if axis is None else self.shape[axis]


def _named(how: dict[str, Any]) -> dict[str, Any]:
    """Arguments under NumPy's names."""
    names = {"dim": "axis", "keepdim": "keepdims"}
    return {names.get(name, name): value for name, value in how.items()}


@lru_cache(maxsize=None)
def _plain() -> Any:
    try:
        import numpy
    except ImportError as missing:
        raise ImportError(
            "pagella.compat.exllamav2 needs tensors: install torch or numpy"
        ) from missing

    class Tensor(numpy.ndarray):
        """An array that can do what programs ask of a tensor of ids or of logits."""

        def to(self, *_where: Any, **_how: Any) -> Tensor:
            """The same numbers: there is one memory."""
            return self

        def cpu(self) -> Tensor:
            """The same numbers: there is one memory."""
            return self

        def cuda(self, *_where: Any) -> Tensor:
            """The same numbers: there is one memory."""
            return self

        def detach(self) -> Tensor:
            """The same numbers: nothing is trained here."""
            return self

        def clone(self) -> Any:
            """A copy."""
            return self.copy()

        def contiguous(self) -> Tensor:
            """The numbers in one piece."""
            flat: Tensor = numpy.ascontiguousarray(self).view(Tensor)
            return flat

        def numel(self) -> builtins.int:
            """How many numbers there are."""
            return builtins.int(numpy.prod(self.shape))

        def dim(self) -> builtins.int:
            """How many axes there are."""
            return self.ndim

        def float(self) -> Any:
            """The numbers as float32."""
            return self.astype(numpy.float32)

        def long(self) -> Any:
            """The numbers as int64."""
            return self.astype(numpy.int64)

        def int(self) -> Any:
            """The numbers as int32."""
            return self.astype(numpy.int32)

        def half(self) -> Any:
            """The numbers as float16."""
            return self.astype(numpy.float16)

        def bool(self) -> Any:
            """Which numbers are not 0."""
            return self.astype(numpy.bool_)

        def view(self, *shape: Any, **how: Any) -> Any:
            """The same numbers in another shape; by a type, NumPy's view."""
            if shape and isinstance(shape[0], (builtins.int, tuple, list)):
                return self.reshape(*shape)
            return super().view(*shape, **how)

        def expand(self, *shape: builtins.int) -> Any:
            """Axes of length 1 repeated without a copy; -1 leaves an axis as it is."""
            own = (1,) * (len(shape) - self.ndim) + self.shape
            wanted = tuple(old if new == -1 else new for old, new in zip(own, shape))
            return numpy.broadcast_to(self, wanted, subok=True)

        def repeat(self, *times: Any, **how: Any) -> Any:
            """So often along each axis; with one number or an axis, as NumPy repeats."""
            if len(times) < 2 or 0 in times or how:
                return super().repeat(*times, **how)
            return numpy.tile(self.numpy(), times).view(Tensor)

        def softmax(self, dim: builtins.int = -1) -> Any:
            """Shares of the whole."""
            return numpy.exp(self.log_softmax(dim))

        def log_softmax(self, dim: builtins.int = -1) -> Any:
            """Their logarithms."""
            below = self - super().max(axis=dim, keepdims=True)
            return below - numpy.log(numpy.exp(below).sum(axis=dim, keepdims=True))

        def topk(self, k: builtins.int, dim: builtins.int = -1) -> Any:
            """The largest numbers and where they are, largest first."""
            order = numpy.argsort(-self, axis=dim, kind="stable")
            where = numpy.take(order, range(k), axis=dim)
            return numpy.take_along_axis(self, where, axis=dim), where

        def gather(self, dim: builtins.int, index: Any) -> Any:
            """The numbers at these places of an axis."""
            return numpy.take_along_axis(self, numpy.asarray(index), axis=dim).view(Tensor)

        def argmax(self, *where: Any, **how: Any) -> Any:
            """Where the largest number is."""
            return super().argmax(*where, **_named(how))

        def argmin(self, *where: Any, **how: Any) -> Any:
            """Where the smallest number is."""
            return super().argmin(*where, **_named(how))

        def sum(self, *where: Any, **how: Any) -> Any:
            """All numbers together."""
            return super().sum(*where, **_named(how))

        def mean(self, *where: Any, **how: Any) -> Any:
            """Their mean."""
            return super().mean(*where, **_named(how))

        def max(self, *where: Any, **how: Any) -> Any:
            """The largest number; with `dim`, the largest of every row and where they are."""
            return self._most(super().max, self.argmax, where, how)

        def min(self, *where: Any, **how: Any) -> Any:
            """The smallest number; with `dim`, the smallest of every row and where they are."""
            return self._most(super().min, self.argmin, where, how)

        def _most(self, value: Any, place: Any, where: Any, how: Any) -> Any:
            found = value(*where, **_named(how))
            return (found, place(*where, **_named(how))) if "dim" in how else found

        def unsqueeze(self, axis: builtins.int) -> Any:
            """One more axis."""
            return numpy.expand_dims(self, axis)

        def numpy(self) -> Any:
            """An array that is nothing else."""
            return numpy.asarray(self).view(numpy.ndarray)

        @property
        def size(self) -> Any:
            """How many numbers there are; called with an axis, its length."""
            return _Size(self.shape)

        def __index__(self) -> builtins.int:
            """The one number that there is."""
            return builtins.int(self.item())

        def __int__(self) -> builtins.int:
            """The one number that there is."""
            return builtins.int(self.item())

        def __float__(self) -> builtins.float:
            """The one number that there is."""
            return builtins.float(self.item())

    if not hasattr(Tensor, "device"):
        # Before NumPy 2.
        setattr(Tensor, "device", "cpu")
    return Tensor


def row_bytes(values: Any) -> bytes:
    """A row of numbers as float32 in native order."""
    if is_torch() and hasattr(values, "detach"):
        values = values.detach().float().cpu()
    import numpy

    return numpy.ascontiguousarray(values, dtype=numpy.float32).tobytes()


def numbers(values: Any, shape: tuple[int, ...], kind: str) -> Any:
    """A tensor of this shape: of numbers in lists, or of an array of the engine without a copy where
    that can be had. `kind` is int64, int32, float32 or bool."""
    if is_torch():
        import torch

        listed = values.tolist() if hasattr(values, "tolist") else values
        return torch.tensor(listed, dtype=getattr(torch, kind)).reshape(shape)
    plain = _plain()
    import numpy

    return numpy.asarray(values, dtype=kind).reshape(shape).view(plain)


def ids(values: Any) -> Any:
    """Ids as a tensor of shape (1, n)."""
    return numbers(values, (1, len(values)), "int64")


def floats(array: Any, shape: tuple[int, ...]) -> Any:
    """Numbers that the engine computed, such as logits."""
    if is_torch():
        import torch

        try:
            import numpy
        except ImportError:
            return numbers(array, shape, "float32")
        # torch wants memory that it may write.
        return torch.from_numpy(numpy.array(array)).reshape(shape)
    return numbers(array, shape, "float32")


def stacked(rows: list[Any]) -> Any:
    """Tensors of equal shape, (1, …), as one."""
    if len(rows) == 1:
        return rows[0]
    if is_torch():
        import torch

        return torch.cat(rows)
    import numpy

    return numpy.concatenate(rows).view(_plain())


def joined(left: Any, right: Any) -> Any:
    """Two tensors, side by side on their second axis."""
    if is_torch():
        import torch

        return torch.cat((left, right), dim=1)
    import numpy

    return numpy.concatenate((left, right), axis=1).view(_plain())


def as_rows(values: Any) -> list[list[int]]:
    """Ids as lists, one per row of a tensor of two axes, or one for a list."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if listed and isinstance(listed[0], (list, tuple)):
        return [[int(value) for value in row] for row in listed]
    return [[int(value) for value in listed]]


def as_list(values: Any) -> list[int]:
    """Ids of one sequence as a list."""
    rows = as_rows(values)
    if len(rows) != 1:
        raise AssertionError(f"one sequence of ids is needed, {len(rows)} were given")
    return rows[0]
