"""litellm: through OpenAI's and Anthropic's dialects, and errors as its own exceptions."""

import json

import litellm
import pytest

from server import API_KEY
from weather import QUESTION, Weather

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": Weather.model_json_schema()}}


def ask(server, dialect, **options):
    base = server.base + ("/v1" if dialect == "openai" else "")
    messages = [{"role": "user", "content": QUESTION}]
    return litellm.completion(**({"model": f"{dialect}/demo", "api_base": base, "api_key": API_KEY, "messages": messages, "max_tokens": 200, "num_retries": 0} | options))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_tool_is_called(server, dialect):
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask(server, dialect, tools=[TOOL], tool_choice=choice)
    [call] = answer.choices[0].message.tool_calls
    assert Weather.model_validate_json(call.function.arguments)
    pieces = ask(server, dialect, tools=[TOOL], tool_choice=choice, stream=True)
    calls = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or []]
    assert json.loads("".join(call.function.arguments or "" for call in calls))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_prompt_that_is_too_long_is_known_as_that(server, dialect):
    with pytest.raises(litellm.ContextWindowExceededError):
        ask(server, dialect, messages=[{"role": "user", "content": "word " * 20000}])


def test_a_prompt_is_scored_without_writing(server):
    """As evaluation harnesses ask for it."""
    answer = litellm.text_completion(
        model="text-completion-openai/demo", api_base=server.base + "/v1", api_key=API_KEY, prompt="The map method",
        max_tokens=0, echo=True, logprobs=1, temperature=0,
    )
    [choice] = answer.choices
    assert choice.text == "The map method" and answer.usage.completion_tokens == 0
    assert choice.logprobs.token_logprobs[0] is None and all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
