"""The chat model for LangChain: LangChain's own tests, and what is particular here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from pydantic import BaseModel, Field

from pagella import Engine
from pagella.errors import RequestError
from pagella.integrations.langchain import ChatPagella

CONTENT = "the demo model is too small to do what the question says"


@pytest.fixture(scope="module")
def open_engine() -> Iterator[Engine]:
    with Engine.open("demo", cache_tokens=8192) as engine:
        yield engine


@pytest.fixture
def chat(open_engine: Engine) -> ChatPagella:
    return ChatPagella(engine=open_engine, temperature=0, max_tokens=40)


class TestUnits(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatPagella

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "demo"}

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        # Nothing is sent anywhere, so there are no retries.
        return {"temperature": 0, "max_tokens": 100, "timeout": 60.0, "stop": []}

    @property
    def supports_model_override(self) -> bool:
        return False


class TestIntegration(ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _engine(self, open_engine: Engine) -> None:
        type(self).shared = open_engine

    shared: Engine

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatPagella

    @property
    def chat_model_params(self) -> dict[str, Any]:
        # It likes to end strings, else it writes long ones.
        pieces = self.shared.tokenizer
        ends = [id for id in range(pieces.vocab_size) if pieces.token_bytes(id).startswith(b'"')]
        settings = {"logit_bias": dict.fromkeys(ends, 6.0)}
        own = {"engine": self.shared, "max_tokens": 300, "seed": 1, "settings": settings}
        return {"model": "demo", **own}

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {"temperature": 0}

    @property
    def supports_model_override(self) -> bool:
        return False

    @pytest.mark.xfail(reason=CONTENT)
    def test_tool_calling(self, model: BaseChatModel) -> None:
        super().test_tool_calling(model)

    @pytest.mark.xfail(reason=CONTENT)
    async def test_tool_calling_async(self, model: BaseChatModel) -> None:
        await super().test_tool_calling_async(model)

    @pytest.mark.xfail(reason=CONTENT)
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)

    @pytest.mark.xfail(reason=CONTENT)
    def test_unicode_tool_call_integration(self, model: BaseChatModel) -> None:
        super().test_unicode_tool_call_integration(model)


def test_a_stream_says_what_the_answer_is(chat: ChatPagella) -> None:
    messages = [SystemMessage("Be brief."), HumanMessage("What is CSS?")]
    whole = chat.invoke(messages)
    chunks = list(chat.stream(messages))
    assert "".join(str(chunk.text) for chunk in chunks) == whole.content != ""
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] == 40
    assert whole.response_metadata["finish_reason"] == "length"

    async def tell() -> str:
        return "".join([str(chunk.text) async for chunk in chat.astream(messages)])

    assert asyncio.run(tell()) == whole.content


def test_what_it_writes_is_what_the_engine_writes(chat: ChatPagella, open_engine: Engine) -> None:
    said = chat.invoke("What is CSS?").content
    assert said == open_engine.chat(temperature=0, max_tokens=40).ask("What is CSS?")


@tool
def look_up(word: str) -> str:
    """Explains a word."""
    return f"{word} is a word"


def test_tools_are_called_and_answered(chat: ChatPagella) -> None:
    called = chat.bind_tools([look_up], tool_choice="any").invoke("What is CSS?", max_tokens=200)
    assert isinstance(called, AIMessage)
    (call,) = called.tool_calls
    assert call["name"] == "look_up" and isinstance(call["args"]["word"], str) and call["id"]
    result = look_up.invoke(call)
    assert isinstance(result, ToolMessage)
    more = chat.bind_tools([look_up]).invoke([HumanMessage("What is CSS?"), called, result])
    assert more.usage_metadata is not None
    with pytest.raises(ValueError, match="look_down"):
        chat.bind_tools([look_up], tool_choice="look_down")


class Entry(BaseModel):
    name: str = Field(max_length=12)
    stable: bool


def test_json_mode_promises_an_object(open_engine: Engine) -> None:
    chat = ChatPagella(engine=open_engine, temperature=0, max_tokens=400)
    said = chat.with_structured_output({"title": "x", "type": "object"}, method="json_mode").invoke("JSON?")
    assert isinstance(said, dict)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_has_its_shape(chat: ChatPagella, method: str) -> None:
    entry = chat.with_structured_output(Entry, method=method).invoke("Describe CSS.")
    assert isinstance(entry, Entry)
    short = ChatPagella(engine=chat.engine, max_tokens=2)
    raw = short.with_structured_output(Entry, include_raw=True).invoke("Describe CSS.")
    assert raw["parsed"] is None and "cut off" in str(raw["parsing_error"]) and raw["raw"].content
    with pytest.raises(OutputParserException, match="max_tokens"):
        short.with_structured_output(Entry).invoke("Describe CSS.")
    plain = chat.with_structured_output(Entry.model_json_schema()).invoke("Describe CSS.")
    assert set(plain) == {"name", "stable"}


def test_settings_are_those_of_a_request(open_engine: Engine) -> None:
    chat = ChatPagella(engine=open_engine, max_tokens=4, settings={"banned_strings": ["e"]})
    assert "e" not in str(chat.invoke("What is CSS?").content)
    with pytest.raises(RequestError, match="temprature"):
        chat.invoke("x", temprature=1)
    with pytest.raises(ValueError):
        ChatPagella(temprature=1)  # type: ignore[call-arg]
    ended = ChatPagella(engine=open_engine, temperature=0).invoke("What is CSS?", stop=["e"])
    assert "e" not in str(ended.content) and ended.response_metadata["finish_reason"] == "stop"


def test_it_opens_its_model_itself() -> None:
    chat = ChatPagella(model="demo", max_tokens=2, open_options={"cache_tokens": 1024})
    assert chat.engine is None
    assert chat.invoke("x").content and chat.engine is not None
    chat.engine.close()
