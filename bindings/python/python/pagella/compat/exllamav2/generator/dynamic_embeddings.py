"""Where programs look for `ExLlamaV2MMEmbedding`."""

from pagella.compat.exllamav2.vlm import ExLlamaV2MMEmbedding

__all__ = ["ExLlamaV2MMEmbedding"]
