"""Generators, jobs and settings."""

from pagella.compat.exllamav2.generator.base import ExLlamaV2BaseGenerator
from pagella.compat.exllamav2.generator.dynamic import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
)
from pagella.compat.exllamav2.generator.dynamic_async import (
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
)
from pagella.compat.exllamav2.generator.hooks import (
    ExLlamaV2PostSamplingHook,
    ExLlamaV2PostSamplingResult,
)
from pagella.compat.exllamav2.generator.sampler import ExLlamaV2Sampler
from pagella.compat.exllamav2.generator.streaming import ExLlamaV2StreamingGenerator
from pagella.compat.exllamav2.vlm import ExLlamaV2MMEmbedding

__all__ = [
    "ExLlamaV2BaseGenerator",
    "ExLlamaV2DynamicGenerator",
    "ExLlamaV2DynamicGeneratorAsync",
    "ExLlamaV2DynamicJob",
    "ExLlamaV2DynamicJobAsync",
    "ExLlamaV2MMEmbedding",
    "ExLlamaV2PostSamplingHook",
    "ExLlamaV2PostSamplingResult",
    "ExLlamaV2Sampler",
    "ExLlamaV2StreamingGenerator",
]
