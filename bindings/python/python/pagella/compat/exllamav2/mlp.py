"""Where programs look for `ExLlamaV2MLP`."""

from pagella.compat.exllamav2.module import ExLlamaV2MLP

__all__ = ["ExLlamaV2MLP"]
