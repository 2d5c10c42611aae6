"""The tokenizer."""

from pagella.compat.exllamav2.tokenizer.tokenizer import ExLlamaV2Tokenizer
from pagella.compat.exllamav2.tokenizer.trie import Trie

__all__ = ["ExLlamaV2Tokenizer", "Trie"]
