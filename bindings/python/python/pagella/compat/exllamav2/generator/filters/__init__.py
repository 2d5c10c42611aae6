"""What a text must look like."""

from pagella.compat.exllamav2.generator.filters.base import (
    ExLlamaV2ChoiceFilter,
    ExLlamaV2Filter,
    ExLlamaV2GrammarFilter,
    ExLlamaV2JsonFilter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
)

__all__ = [
    "ExLlamaV2ChoiceFilter",
    "ExLlamaV2Filter",
    "ExLlamaV2GrammarFilter",
    "ExLlamaV2JsonFilter",
    "ExLlamaV2PrefixFilter",
    "ExLlamaV2RegexFilter",
    "ExLlamaV2SelectFilter",
]
