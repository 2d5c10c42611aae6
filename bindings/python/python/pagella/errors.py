"""What can go wrong. Every message says what happened and what to do."""

__all__ = [
    "BusyError",
    "DeviceError",
    "EngineError",
    "ModelError",
    "OutOfMemoryError",
    "PagellaError",
    "RequestError",
]


class PagellaError(Exception):
    """Anything that Pagella reports."""


class ModelError(PagellaError):
    """A model, a tokenizer or an adapter cannot be opened."""


class RequestError(PagellaError, ValueError):
    """A prompt, a setting or a constraint cannot be had as it is."""


class BusyError(PagellaError):
    """Too many requests wait: try again later."""


class DeviceError(PagellaError):
    """A device cannot be used, or failed."""


class OutOfMemoryError(DeviceError, MemoryError):
    """Memory ran out."""


class EngineError(PagellaError, RuntimeError):
    """The engine failed, or was closed."""
