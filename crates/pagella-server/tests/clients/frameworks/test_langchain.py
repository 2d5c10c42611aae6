"""LangChain, with its packages for OpenAI and for Anthropic."""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from server import API_KEY
from weather import QUESTION, Weather, get_weather


@pytest.fixture(scope="module")
def openai_model(server):
    return ChatOpenAI(model="demo", base_url=server.base + "/v1", api_key=API_KEY, max_retries=0, temperature=0, max_tokens=200)


@pytest.fixture(scope="module")
def anthropic_model(server):
    return ChatAnthropic(model_name="demo", base_url=server.base, api_key=API_KEY, max_retries=0, temperature=0, max_tokens=200)


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_structured_output_by_openai(openai_model, method):
    assert isinstance(openai_model.with_structured_output(Weather, method=method).invoke(QUESTION), Weather)


def test_structured_output_by_anthropic(anthropic_model):
    assert isinstance(anthropic_model.with_structured_output(Weather).invoke(QUESTION), Weather)


@pytest.mark.parametrize("name", ["openai_model", "anthropic_model"])
def test_a_tool_is_called_whole_and_streamed(request, name):
    bound = request.getfixturevalue(name).bind_tools([tool(get_weather)], tool_choice="get_weather")
    answer = bound.invoke(QUESTION)
    [call] = answer.tool_calls
    assert call["name"] == "get_weather" and call["args"]["city"] in ("Paris", "Rome") and isinstance(call["args"]["days"], int)
    pieces = None
    for piece in bound.stream(QUESTION):
        pieces = piece if pieces is None else pieces + piece
    assert pieces.tool_calls[0]["args"] == call["args"]


@pytest.mark.parametrize("name", ["openai_model", "anthropic_model"])
def test_a_call_that_is_cut_is_not_taken_for_one(request, name):
    model = request.getfixturevalue(name)
    for tokens in (1, 4, 8, 12, 16):
        answer = model.bind_tools([tool(get_weather)], tool_choice="get_weather").invoke(QUESTION, max_tokens=tokens)
        assert not answer.content
        for call in answer.tool_calls:
            assert call["args"]["city"] in ("Paris", "Rome") and "days" in call["args"]
