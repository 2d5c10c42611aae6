"""Where programs look for `ExLlamaV2SelectFilter`."""

from pagella.compat.exllamav2.generator.filters.base import ExLlamaV2SelectFilter

__all__ = ["ExLlamaV2SelectFilter"]
