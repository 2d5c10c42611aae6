"""Where programs look for `ExLlamaV2RMSNorm`."""

from pagella.compat.exllamav2.module import ExLlamaV2RMSNorm

__all__ = ["ExLlamaV2RMSNorm"]
