"""Where programs look for `ExLlamaV2MultimodalProjector`."""

from pagella.compat.exllamav2.vlm.vision_tower import ExLlamaV2MultimodalProjector

__all__ = ["ExLlamaV2MultimodalProjector"]
