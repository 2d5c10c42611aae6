"""Where programs look for `ExLlamaV2Linear`."""

from pagella.compat.exllamav2.module import ExLlamaV2Linear

__all__ = ["ExLlamaV2Linear"]
