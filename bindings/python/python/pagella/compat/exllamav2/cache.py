"""`ExLlamaV2Cache` and its kinds: how keys and values are stored, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagella.compat.exllamav2.model import ExLlamaV2

__all__ = [
    "ExLlamaV2Cache",
    "ExLlamaV2CacheBase",
    "ExLlamaV2Cache_8bit",
    "ExLlamaV2Cache_Q4",
    "ExLlamaV2Cache_Q6",
    "ExLlamaV2Cache_Q8",
    "ExLlamaV2Cache_TP",
]



class ExLlamaV2CacheBase:
    """A cache on its way: the engine makes it, and takes memory as it fills."""

    #: The engine's name for the way keys and values are stored.
    format = "fp16"
    #: Bits per element of keys and of values, scales included.
    _bits = (16.0, 16.0)

    def __init__(
        self,
        model: ExLlamaV2,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
        lazy: bool = False,
        num_key_value_heads: int | None = None,
        fixed_device: int | None = None,
    ) -> None:
        if lazy and copy_from is not None:
            raise AssertionError("Cannot create lazy cache from another cache")
        own_heads = model.config.num_key_value_heads
        if num_key_value_heads is not None and num_key_value_heads != own_heads:
            raise NotImplementedError(
                f"num_key_value_heads cannot be chosen: the model has {own_heads}"
            )
        if fixed_device not in (None, 0, "cuda:0"):
            raise NotImplementedError("fixed_device: the cache is where the model is")
        self.model = model
        self.batch_size = batch_size
        self.max_seq_len = max_seq_len if max_seq_len != -1 else model.config.max_seq_len
        self.num_key_value_heads = own_heads
        self.num_hidden_layers = model.config.num_hidden_layers
        self.head_dim = model.config.head_dim
        #: Ids whose keys and values are there, row by row, for `model.forward`.
        self.rows: list[list[int]] = []
        #: How many of a row's columns are padding, in front of its ids.
        self.pads: list[int] = []
        self._length = 0
        if copy_from is not None:
            if copy_from.format != self.format:
                raise AssertionError(
                    f"the cache to copy is of another kind: {copy_from.format}, not {self.format}"
                )
            self._take(copy_from)
        if not lazy:
            model.cache_made(self)

    @property
    def current_seq_len(self) -> int:
        """Tokens in the cache, for `model.forward`. Can be set to go back."""
        return self._length

    @current_seq_len.setter
    def current_seq_len(self, tokens: int) -> None:
        held = len(self.rows[0]) + self.pads[0] if self.rows else 0
        if not 0 <= tokens <= held:
            raise AssertionError(f"the cache holds {held} tokens, not {tokens}")
        self._length = tokens

    def _take(self, other: ExLlamaV2CacheBase) -> None:
        self.rows, self.pads = [list(row) for row in other.rows], list(other.pads)
        self._length = other._length

    def set_rows(self, rows: list[list[int]], pads: list[int]) -> None:
        """The cache holds these."""
        self.rows, self.pads = rows, pads
        self._length = len(rows[0]) + pads[0]

    def reset(self) -> None:
        """Forgets everything."""
        self._length = 0
        self.rows, self.pads = [], []

    def clone(self) -> ExLlamaV2CacheBase:
        """Another cache of the same kind that holds the same."""
        return type(self)(self.model, self.batch_size, self.max_seq_len, copy_from=self)

    def footprint(self) -> list[int]:
        """Bytes it takes when it is full, per device."""
        elements = self.num_hidden_layers * self.num_key_value_heads * self.head_dim
        return [int(self.batch_size * self.max_seq_len * elements * sum(self._bits) / 8)]

    def copy_states(
        self,
        target: ExLlamaV2CacheBase,
        from_column: int,
        from_columns: int,
        to_column: int,
        to_columns: int,
        from_row: int,
        from_rows: int,
        to_row: int,
        to_rows: int,
    ) -> None:
        """Copies the beginning of a row to rows of another cache. Columns in the middle, or to another
        place, are refused: keys know their position."""
        if from_rows != 1 or from_columns != to_columns:
            raise AssertionError("one row is copied, and as many columns as there were")
        if from_column != 0 or to_column != 0:
            raise NotImplementedError(
                "copy_states copies the beginning of a row only: give 0 as from_column and to_column, "
                "or let forward compute the rest"
            )
        if from_row >= len(self.rows) or self.pads[from_row]:
            raise AssertionError(f"the cache has no unpadded row {from_row}")
        if to_row + to_rows > target.batch_size or to_columns > target.max_seq_len:
            raise AssertionError("the other cache has no room for these rows and columns")
        copied = self.rows[from_row][:from_columns]
        rows = [list(row) for row in target.rows] or [[] for _ in range(target.batch_size)]
        for row in range(to_row, to_row + to_rows):
            rows[row] = copied + rows[row][to_columns:]
        target.rows, target.pads = rows, [0] * len(rows)


class ExLlamaV2Cache(ExLlamaV2CacheBase):
    """Keys and values as FP16."""


class ExLlamaV2Cache_8bit(ExLlamaV2CacheBase):  # noqa: N801
    """Keys and values as FP8."""

    format = "fp8"
    _bits = (8.0, 8.0)


class ExLlamaV2Cache_Q4(ExLlamaV2CacheBase):  # noqa: N801
    """Keys and values in 4 bits, with scales."""

    format = "q4"
    _bits = (4.5, 4.5)


class ExLlamaV2Cache_Q6(ExLlamaV2CacheBase):  # noqa: N801
    """Keys in 8 bits, values in 4, with scales."""

    format = "q6"
    _bits = (8.5, 4.5)


class ExLlamaV2Cache_Q8(ExLlamaV2CacheBase):  # noqa: N801
    """Keys and values in 8 bits, with scales."""

    format = "q8"
    _bits = (8.5, 8.5)


class ExLlamaV2Cache_TP(ExLlamaV2CacheBase):  # noqa: N801
    """The cache of a model that `load_tp` loaded; `base` is its kind."""

    def __init__(
        self,
        model: ExLlamaV2,
        base: type[ExLlamaV2CacheBase] = ExLlamaV2Cache,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
    ) -> None:
        if model.tp_context is None:
            raise AssertionError("Cannot create TP cache unless model is loaded with load_tp()")
        self.format, self._bits = base.format, base._bits
        super().__init__(model, batch_size, max_seq_len, copy_from)

    def clone(self) -> ExLlamaV2CacheBase:
        """Another cache of the same kind that holds the same."""
        every: tuple[type[ExLlamaV2CacheBase], ...] = (ExLlamaV2Cache, *_QUANTIZED)
        kinds = {kind.format: kind for kind in every}
        base = kinds[self.format]
        return ExLlamaV2Cache_TP(self.model, base, self.batch_size, self.max_seq_len, self)


_QUANTIZED: tuple[type[ExLlamaV2CacheBase], ...] = (
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
)
