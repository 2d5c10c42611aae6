"""Where programs look for `ExLlamaV2Attention`, and for what attention can do here."""

from pagella.compat.exllamav2.module import ExLlamaV2Attention

__all__ = [
    "ExLlamaV2Attention",
    "assert_paged_attn",
    "has_flash_attn",
    "has_lower_right_sdpa",
    "has_xformers",
]

#: Attention over pages is part of the engine and needs no other package.
has_flash_attn = True
has_xformers = False
has_lower_right_sdpa = False


def assert_paged_attn() -> None:
    """Does nothing: every backend has attention over pages."""
