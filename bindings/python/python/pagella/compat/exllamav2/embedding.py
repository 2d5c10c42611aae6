"""Where programs look for `ExLlamaV2Embedding`."""

from pagella.compat.exllamav2.module import ExLlamaV2Embedding

__all__ = ["ExLlamaV2Embedding"]
