"""Anthropic's client: messages, streams, tools, counting, errors."""

import anthropic
import pytest

HELLO = [{"role": "user", "content": "What is an array?"}]
TOOL = {
    "name": "get_time",
    "description": "The time",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False},
    "strict": True,
}


def fields(options):
    """The client itself has no parameter for the temperature any more; the interface does."""
    extra = {"temperature": 0} | options.pop("extra_body", {})
    return {"model": "demo", "messages": HELLO, "max_tokens": 16, "extra_body": extra} | options


def ask(ant, **options):
    return ant.messages.create(**fields(options))


def test_a_message_is_answered(ant):
    message = ask(ant, system="Be brief.")
    assert message.type == "message" and message.role == "assistant" and message.id.startswith("msg_")
    assert message.content[0].type == "text" and message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 16


def test_the_stream_helper_says_the_same(ant):
    with ant.messages.stream(**fields({})) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = ask(ant)
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_events_come_in_order(ant):
    kinds = [event.type for event in ask(ant, stream=True) if event.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_a_stop_sequence_is_named(ant):
    text = ask(ant, max_tokens=24).content[0].text
    stop = text[len(text) // 2 :][:3]
    if not stop.strip():
        pytest.skip("the answer has only white space there")
    message = ask(ant, max_tokens=24, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


def test_the_last_assistant_message_is_continued(ant):
    message = ask(ant, messages=[*HELLO, {"role": "assistant", "content": "An array is"}])
    assert message.content[0].text and not message.content[0].text.startswith("An array is")


def test_tokens_are_counted(ant):
    count = ant.messages.count_tokens(model="demo", messages=HELLO).input_tokens
    usage = ask(ant).usage
    assert count == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert ant.messages.count_tokens(model="demo", messages=HELLO, tools=[TOOL]).input_tokens >= count


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}])
def test_a_tool_is_called_and_its_result_continues(ant, choice):
    first = ask(ant, tools=[TOOL], tool_choice=choice, max_tokens=200)
    assert first.stop_reason == "tool_use"
    [call] = [block for block in first.content if block.type == "tool_use"]
    assert call.name == "get_time" and call.input["zone"] in ("UTC", "CET") and call.id.startswith("toolu_")
    turn = [
        *HELLO,
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "12:00"}]},
    ]
    second = ask(ant, messages=turn, tools=[TOOL], tool_choice={"type": "none"})
    assert second.content[0].type == "text"


def test_a_streamed_call_is_the_whole_call(ant):
    choice = {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}
    options = {"tools": [TOOL], "tool_choice": choice, "max_tokens": 200}
    with ant.messages.stream(**fields(dict(options))) as stream:
        pieces = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use" and pieces
    [whole] = [block for block in ask(ant, **options).content if block.type == "tool_use"]
    [streamed] = [block for block in final.content if block.type == "tool_use"]
    assert streamed.input == whole.input


def test_errors_are_its_exceptions(server, ant):
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask(ant, extra_body={"temperature": 99})
    body = raised.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error" and body["request_id"]
    stranger = anthropic.Anthropic(base_url=server.base, api_key="wrong-secret", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        ask(stranger)


def test_leaving_a_stream_ends_its_job(server, ant):
    stream = ask(ant, max_tokens=6000, stream=True, extra_body={"ban_eos_token": True})
    for _, _ in zip(range(5), stream):
        pass
    stream.close()
    server.wait_idle()


def test_models_are_listed(ant):
    assert [model.id for model in ant.models.list()] == ["demo"]
