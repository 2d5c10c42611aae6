"""A chat model for LangChain that runs in this process.

>>> from pagella.integrations.langchain import ChatPagella
>>> ChatPagella(model="demo", max_tokens=60).invoke("What is CSS?").content

Through the server LangChain needs nothing of this: its classes for OpenAI and Anthropic work. Structured
output and forced calls of tools are enforced while the model writes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

try:
    import langchain_core  # noqa: F401
except ImportError as missing:
    sentence = "pagella.integrations.langchain needs LangChain: pip install langchain-core"
    raise ImportError(sentence) from missing

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import (
    BaseChatModel,
    agenerate_from_stream,
    generate_from_stream,
)
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from pagella import ChatEvent, ChatStream, Completion, Engine

__all__ = ["ChatPagella"]

#: Fields that are settings of a request, under the same name.
_SETTINGS = ("temperature", "top_p", "max_tokens", "seed", "timeout")
#: What LangChain calls why an answer ended.
_REASONS = {"max_new_tokens": "length", "length_limit": "length"}


class ChatPagella(BaseChatModel):
    """A model in this process. It is opened when it is first asked, unless an open `engine` is given,
    which several chat models may share."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", populate_by_name=True)

    model_name: str = Field(default="demo", alias="model")
    #: An open engine.
    engine: Engine | None = Field(default=None, exclude=True)
    #: What `Engine.open` takes besides the model.
    open_options: dict[str, Any] = Field(default_factory=dict)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    #: Seconds after which an answer ends with what is there.
    timeout: float | None = None
    stop: list[str] | None = None
    streaming: bool = False
    #: Any other settings of a request.
    settings: dict[str, Any] = Field(default_factory=dict)

    _opening: Lock = PrivateAttr(default_factory=Lock)

    @property
    def _llm_type(self) -> str:
        return "pagella"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _SETTINGS}
        return {"model": self.model_name, **own, **self.settings}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        told = super()._get_ls_params(stop=stop, **kwargs)
        told["ls_provider"] = "pagella"
        told["ls_model_name"] = kwargs.get("model", self.model_name)
        return told

    def _open(self) -> Engine:
        with self._opening:
            if self.engine is None:
                self.engine = Engine.open(self.model_name, **self.open_options)
            return self.engine

    def get_token_ids(self, text: str) -> list[int]:
        """Ids of a text, by the model's own tokenizer."""
        listed: list[int] = self._open().tokenizer.encode(text, add_bos=False).tolist()
        return listed

    def _ask(
        self, messages: list[BaseMessage], stop: list[str] | None, asked: dict[str, Any]
    ) -> ChatStream:
        """An answer that has begun. What `bind` or a call has added is in `asked`."""
        asked = dict(asked)
        for name in ("ls_structured_output_format", "stream", "strict"):
            asked.pop(name, None)
        tools, choice = asked.pop("tools", ()), asked.pop("tool_choice", None)
        own = {name: getattr(self, name) for name in _SETTINGS}
        wanted = {
            **{name: value for name, value in own.items() if value is not None},
            **self.settings,
            **asked,
        }
        ends = [*(self.stop or ()), *(stop or ())]
        if ends:
            wanted["stop"] = ends
        turns = convert_to_openai_messages(messages, text_format="string")
        listed = turns if isinstance(turns, list) else [turns]
        system = None
        if listed and listed[0]["role"] == "system":
            system, listed = listed[0]["content"], listed[1:]
        chat = self._open().chat(system, tools=tools, tool_choice=choice, **wanted)
        return chat.send_messages(listed)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._ask(messages, stop, kwargs)
        for event in answer:
            chunk = self._chunk(event, answer)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._ask(messages, stop, kwargs)
        async for event in answer:
            chunk = self._chunk(event, answer)
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, None, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, None, **kwargs))

    def _chunk(self, event: ChatEvent, answer: ChatStream) -> ChatGenerationChunk:
        calls = []
        for part in event.parts:
            if part["type"] == "call":
                opened = tool_call_chunk(name=part["name"], args="", id=part["id"], index=part["index"])
                calls.append(opened)
            elif part["type"] == "arguments":
                calls.append(tool_call_chunk(args=part["text"], index=part["index"]))
        message = AIMessageChunk(content=event.text, tool_call_chunks=calls)
        if event.reasoning:
            message.additional_kwargs["reasoning_content"] = event.reasoning
        done = event.done
        if done is not None:
            message.usage_metadata = _usage(done)
            message.chunk_position = "last"
            message.response_metadata = {
                "model_name": self.model_name,
                "model_provider": "pagella",
                "finish_reason": _REASONS.get(done.eos_reason, "stop"),
                "seed": str(done.seed),
            }
            if answer.dropped_messages:
                # The oldest, which did not fit into the context.
                message.response_metadata["dropped_messages"] = answer.dropped_messages
        return ChatGenerationChunk(message=message)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Lets the model call tools. `tool_choice` is `auto`, `any`, `none` or the name of a tool."""
        written = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        names = [tool["function"]["name"] for tool in written]
        bound = self.bind(tools=written, tool_choice=_choice(tool_choice, names), **kwargs)
        return bound

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: str = "json_schema",
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | Any]:
        """Answers of this shape: a class of pydantic, a typed dictionary or a JSON schema. The model cannot
        write anything else, whichever `method` is named; `json_mode` promises some JSON object only."""
        kwargs.pop("strict", None)
        if kwargs:
            raise ValueError(f"with_structured_output does not know {', '.join(kwargs)}")
        if method not in ("json_schema", "function_calling", "json_mode"):
            raise ValueError(f"method is {method!r}: choose json_schema, function_calling or json_mode")
        shape: dict[str, Any] = {"json_schema": _closed(convert_to_json_schema(schema))}
        if method == "json_mode":
            shape = {"json_object": True}
        told = {"kwargs": {"method": method}, "schema": convert_to_openai_tool(schema)}
        bound = self.bind(**shape, ls_structured_output_format=told)
        reader = RunnableLambda(partial(_read, schema))
        if not include_raw:
            return bound | reader
        with_error = RunnablePassthrough.assign(
            parsed=lambda said: _read(schema, said["raw"]), parsing_error=lambda _: None
        )
        without = RunnablePassthrough.assign(parsed=lambda _: None)
        caught = with_error.with_fallbacks([without], exception_key="parsing_error")
        return RunnableMap(raw=bound) | caught


def _closed(schema: Any) -> Any:
    """A schema whose objects have the properties that it names, and no others unless it says so."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def _read(schema: dict[str, Any] | type, answer: BaseMessage) -> Any:
    """An answer in its shape. One that was cut off is an error, not a part of what was asked for."""
    text = str(answer.text)
    if answer.response_metadata.get("finish_reason") == "length":
        sentence = f"the answer was cut off after {len(text)} characters: raise max_tokens"
        raise OutputParserException(sentence, llm_output=text)
    try:
        found = json.loads(text)
        if isinstance(schema, type) and is_basemodel_subclass(schema):
            return schema.model_validate(found) if issubclass(schema, BaseModel) else schema(**found)
        return found
    except ValueError as problem:
        raise OutputParserException(str(problem), llm_output=text) from problem


def _choice(choice: str | bool | Mapping[str, Any] | None, names: Sequence[str]) -> Any:
    """A choice of tools in OpenAI's words."""
    if choice in (None, False, "auto"):
        return None
    if choice in (True, "any", "required"):
        # One tool is called once, as if it had been named.
        return "required" if len(names) > 1 else {"type": "function", "function": {"name": names[0]}}
    if choice == "none":
        return "none"
    name = choice
    if isinstance(choice, Mapping):
        name = choice.get("name") or choice.get("function", {}).get("name")
    if name not in names:
        raise ValueError(f"tool_choice names {name!r} and the tools are {', '.join(names)}")
    return {"type": "function", "function": {"name": name}}


def _usage(done: Completion) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=done.prompt_tokens,
        output_tokens=done.new_tokens,
        total_tokens=done.prompt_tokens + done.new_tokens,
        input_token_details={"cache_read": done.cached_tokens},
    )
