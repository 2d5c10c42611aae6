"""OpenAI's client: tools, one and several, whole and streamed, over several turns."""

import json

import openai
import pydantic
import pytest

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False},
        "strict": True,
    },
}
TOOLS = [WEATHER, TIME]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(oai, **options):
    return oai.chat.completions.create(**({"model": "demo", "messages": QUESTION, "tools": TOOLS, "max_tokens": 200, "temperature": 0} | options))


def check_call(call):
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    match call.function.name:
        case "get_weather":
            assert arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 7
        case "get_time":
            assert arguments["zone"] in ("UTC", "CET")
        case name:
            raise AssertionError(name)


def named(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("seed", range(3))
def test_a_named_tool_is_called(oai, seed):
    for name in ("get_weather", "get_time"):
        answer = ask(oai, tool_choice=named(name), parallel_tool_calls=False, temperature=1.0, seed=seed)
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        [call] = choice.message.tool_calls
        assert call.function.name == name
        check_call(call)


def complete(choice):
    """Calls that came to their end: the model may go on calling until its tokens are used up."""
    calls = choice.message.tool_calls
    return calls[:-1] if choice.finish_reason == "length" else calls


def test_a_required_tool_is_called(oai):
    for seed in range(4):
        [choice] = ask(oai, tool_choice="required", temperature=1.0, seed=seed).choices
        assert choice.finish_reason in ("tool_calls", "length") and complete(choice)
        for call in complete(choice):
            check_call(call)


def test_calls_in_parallel(oai):
    """Several calls in one answer have ids of their own, stand in order, and stream as they are."""
    options = {"tool_choice": "required", "temperature": 1.5, "max_tokens": 120}
    for seed in range(20):
        [choice] = ask(oai, seed=seed, **options).choices
        calls = complete(choice)
        if len(calls) < 2:
            continue
        for call in calls:
            check_call(call)
        assert len({call.id for call in calls}) == len(calls)
        streamed, reason = collect(ask(oai, seed=seed, stream=True, **options))
        assert reason == choice.finish_reason
        assert [call["arguments"] for call in streamed] == [call.function.arguments for call in choice.message.tool_calls]
        return
    raise AssertionError("no answer had several calls")


def collect(stream):
    """Calls of a stream, held to the order in which their pieces may come."""
    calls, reason = [], None
    for chunk in stream:
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            for piece in choice.delta.tool_calls or []:
                if piece.index == len(calls):
                    assert piece.id and piece.type == "function" and piece.function.name
                    calls.append({"id": piece.id, "name": piece.function.name, "arguments": ""})
                assert piece.index == len(calls) - 1, "an earlier call was opened again"
                calls[-1]["arguments"] += piece.function.arguments or ""
    return calls, reason


def test_a_streamed_call_is_the_whole_call(oai):
    options = {"tool_choice": named("get_weather"), "parallel_tool_calls": False, "temperature": 1.0, "seed": 3}
    [whole] = ask(oai, **options).choices[0].message.tool_calls
    [streamed], reason = collect(ask(oai, stream=True, **options))
    assert reason == "tool_calls"
    assert (streamed["name"], streamed["arguments"]) == (whole.function.name, whole.function.arguments)


def test_a_call_and_its_result_make_a_second_turn(oai):
    first = ask(oai, tool_choice="required", parallel_tool_calls=False).choices[0].message
    call = first.tool_calls[0]
    turn = [*QUESTION, first.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    second = ask(oai, messages=turn, tool_choice="none", max_tokens=12).choices[0]
    assert second.message.content and not second.message.tool_calls
    third = ask(oai, messages=[*turn, {"role": "assistant", "content": second.message.content}, *QUESTION], tool_choice="required").choices[0]
    assert third.message.tool_calls


def test_no_tool_is_called_when_none_may_be(oai):
    choice = ask(oai, tool_choice="none", max_tokens=24).choices[0]
    assert choice.message.content and not choice.message.tool_calls


class GetWeather(pydantic.BaseModel):
    """The weather of a place."""

    days: int = pydantic.Field(ge=1, le=7)
    precise: bool


def test_pydantic_tools_are_parsed(oai):
    tool = openai.pydantic_function_tool(GetWeather)
    answer = oai.chat.completions.parse(model="demo", messages=QUESTION, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=100, temperature=0)
    [call] = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather)


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": named("no_such_tool")},
        {"tools": [], "tool_choice": "required"},
        {"tools": [{"type": "function", "function": {"name": "bad name!"}}]},
        {"tools": [TIME, TIME]},
    ],
)
def test_tools_that_cannot_be_meant_are_refused(oai, options):
    with pytest.raises(openai.BadRequestError):
        ask(oai, **options)
