"""Where programs look for `ExLlamaV2PrefixFilter`."""

from pagella.compat.exllamav2.generator.filters.base import ExLlamaV2PrefixFilter

__all__ = ["ExLlamaV2PrefixFilter"]
