"""Images: names that programs import. Using them raises, with a sentence."""

from pagella.compat.exllamav2.vlm.mmprojector import ExLlamaV2MultimodalProjector
from pagella.compat.exllamav2.vlm.vision_tower import ExLlamaV2MMEmbedding, ExLlamaV2VisionTower

__all__ = ["ExLlamaV2MMEmbedding", "ExLlamaV2MultimodalProjector", "ExLlamaV2VisionTower"]
