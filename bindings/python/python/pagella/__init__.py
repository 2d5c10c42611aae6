"""A local LLM inference engine for EXL2 and GPTQ models.

>>> from pagella import Engine
>>> engine = Engine.open("demo")
>>> print(engine.complete("The `map()` method", max_tokens=60))

`docs/python.md` is the guide; programs written for ExLlamaV2 find its classes in
`pagella.compat.exllamav2`.
"""

from pagella import errors
from pagella._chat import Chat, ToolCall
from pagella._engine import Engine, inspect
from pagella._pagella import (
    VERSION as __version__,
    Adapter,
    Array,
    ChatEvent,
    ChatStream,
    Completion,
    Record,
    Session,
    Stream,
    Tokenizer,
    parameters,
)
from pagella.errors import PagellaError

__all__ = [
    "Adapter",
    "Array",
    "Chat",
    "ChatEvent",
    "ChatStream",
    "Completion",
    "Engine",
    "PagellaError",
    "Record",
    "Session",
    "Stream",
    "Tokenizer",
    "ToolCall",
    "__version__",
    "errors",
    "inspect",
    "parameters",
]
