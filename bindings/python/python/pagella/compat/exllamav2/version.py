"""The version of ExLlamaV2 whose classes these are."""

__all__ = ["__version__"]

__version__ = "0.3.2"
