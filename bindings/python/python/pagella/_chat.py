"""`Chat`: a conversation that remembers its turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagella import _pagella

if TYPE_CHECKING:
    from pagella._settings import Settings

__all__ = ["Chat", "ToolCall"]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model made."""

    id: str
    name: str
    #: Its arguments, by name.
    arguments: dict[str, Any]


class Chat:
    """A conversation that remembers its turns. Made by `Engine.chat`."""

    def __init__(
        self,
        native: _pagella.Chat,
        system: str | None,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] | None,
        settings: Settings,
    ) -> None:
        self._native = native
        own: dict[str, Any] = dict(settings)
        tokens = own.pop("max_tokens", None)
        native.set_settings(own)
        native.set_max_tokens(tokens)
        native.set_system(system)
        if tools:
            native.set_tools(list(tools), tool_choice)

    def send(self, text: str) -> _pagella.ChatStream:
        """Asks a question. The answer is an iterator of events, and an asynchronous one; it is
        remembered as far as it was written, and letting go of it stops the model."""
        return self._native.send(text)

    def ask(self, text: str) -> str:
        """Asks a question and returns the whole answer."""
        return "".join(event.text for event in self.send(text))

    def send_results(self, results: Iterable[object]) -> _pagella.ChatStream:
        """Goes on with what the tools answered: one result for each of the `calls`, in their order.
        What is no text is written as JSON."""
        written = [
            result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            for result in results
        ]
        return self._native.send_results(written)

    def send_messages(self, messages: Iterable[Mapping[str, Any]]) -> _pagella.ChatStream:
        """Goes on behind these messages, whatever they are: several turns at once, for programs that keep
        the conversation themselves."""
        return self._native.send_messages([dict(message) for message in messages])

    @property
    def calls(self) -> list[ToolCall]:
        """Calls of tools in the last answer, which wait for `send_results`."""
        return [
            ToolCall(id, name, json.loads(arguments))
            for id, name, arguments in self._native.calls()
        ]

    def set_tools(
        self,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] | None = None,
    ) -> None:
        """Lets the model call tools, as OpenAI writes them; an empty list takes them away."""
        self._native.set_tools(list(tools), choice)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Questions and answers so far, as messages, without the system message."""
        return self._native.turns()

    @turns.setter
    def turns(self, turns: Sequence[Mapping[str, Any]]) -> None:
        self._native.set_turns([dict(turn) for turn in turns])

    def undo(self) -> str | None:
        """Takes back the last question with its answer and returns the question."""
        return self._native.undo()

    def clear(self) -> None:
        """Forgets all turns; the system message stays."""
        self._native.clear()
