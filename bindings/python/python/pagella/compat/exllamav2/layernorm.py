"""Where programs look for `ExLlamaV2LayerNorm`."""

from pagella.compat.exllamav2.module import ExLlamaV2LayerNorm

__all__ = ["ExLlamaV2LayerNorm"]
