"""The WebSocket server: a name that programs import. Using it raises, with a sentence."""

from __future__ import annotations

from typing import Any

__all__ = ["ExLlamaV2WebSocketServer"]


class ExLlamaV2WebSocketServer:
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(
            "the WebSocket server is not part of this: `python -m pagella serve MODEL` speaks the "
            "protocols of OpenAI, Anthropic, Ollama and others"
        )
