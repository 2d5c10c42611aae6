"""Where programs look for `ExLlamaV2MoEMLP`."""

from pagella.compat.exllamav2.module import ExLlamaV2MoEMLP

__all__ = ["ExLlamaV2MoEMLP"]
