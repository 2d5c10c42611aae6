"""OpenAI's client: the Responses interface."""

import json

import openai
import pydantic
import pytest

TOOL = {
    "type": "function",
    "name": "get_time",
    "description": "The time",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False},
    "strict": True,
}


def ask(oai, **options):
    return oai.responses.create(**({"model": "demo", "input": "What is an array?", "max_output_tokens": 16, "temperature": 0} | options))


def test_an_input_is_answered(oai):
    response = ask(oai, instructions="Be brief.")
    assert response.object == "response" and response.id.startswith("resp_")
    assert response.status in ("completed", "incomplete") and response.output_text
    assert response.usage.output_tokens <= 16
    if response.status == "incomplete":
        assert response.incomplete_details.reason == "max_output_tokens"


def test_events_come_in_order_and_say_the_same(oai):
    whole = ask(oai)
    events = list(ask(oai, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    # On a busy machine the response may have to wait, which is said.
    kinds = [event.type for event in events if event.type != "response.queued"]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert sum(kind in ("response.completed", "response.incomplete", "response.failed") for kind in kinds) == 1
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == whole.output_text


def test_the_stream_helper_accumulates(oai):
    """The helper refuses answers that were cut, so a pattern lets this one end."""
    options = {"max_output_tokens": 40, "extra_body": {"regex_pattern": "[a-z]{3,9} [a-z]{3,9}\\."}}
    with oai.responses.stream(model="demo", input="What is an array?", temperature=0, **options) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.status == "completed"
    assert final.output_text == ask(oai, **options).output_text


def test_a_previous_response_is_continued(oai):
    first = ask(oai)
    second = ask(oai, input="And a list?", previous_response_id=first.id)
    alone = ask(oai, input="And a list?")
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > alone.usage.input_tokens
    items = oai.responses.input_items.list(second.id)
    assert items.data


def test_responses_are_kept_and_deleted(oai):
    response = ask(oai)
    assert oai.responses.retrieve(response.id).output_text == response.output_text
    oai.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(response.id)
    unkept = ask(oai, store=False)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(unkept.id)


def test_a_tool_is_called_and_its_result_continues(oai):
    first = ask(oai, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_output_tokens=200)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert call.name == "get_time" and json.loads(call.arguments)["zone"] in ("UTC", "CET")
    result = [{"type": "function_call_output", "call_id": call.call_id, "output": "12:00"}]
    second = ask(oai, input=result, previous_response_id=first.id, tools=[TOOL], tool_choice="none")
    assert second.output_text


def test_a_streamed_call_is_the_whole_call(oai):
    options = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 200}
    events = list(ask(oai, stream=True, **options))
    pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    [done] = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert pieces == done.arguments
    [whole] = [item for item in ask(oai, **options).output if item.type == "function_call"]
    assert done.arguments == whole.arguments


class Item(pydantic.BaseModel):
    count: int = pydantic.Field(ge=0, le=99)
    sold: bool


def test_structured_output_with_pydantic(oai):
    response = oai.responses.parse(model="demo", input="An item, please.", text_format=Item, max_output_tokens=100, temperature=0)
    assert isinstance(response.output_parsed, Item)


def test_a_response_in_the_background_can_be_cancelled(server, oai):
    response = ask(oai, background=True, max_output_tokens=6000, extra_body={"ban_eos_token": True})
    assert response.status in ("queued", "in_progress")
    cancelled = oai.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    server.wait_idle()
    assert oai.responses.retrieve(response.id).status == "cancelled"


def test_a_response_in_the_background_finishes(server, oai):
    response = ask(oai, background=True)
    server.wait_for("the response", lambda: oai.responses.retrieve(response.id).status in ("completed", "incomplete"))
    assert oai.responses.retrieve(response.id).output_text == ask(oai).output_text


def test_what_is_wrong_is_refused(oai):
    for options in ({"previous_response_id": "resp_none"}, {"temperature": 99}):
        with pytest.raises((openai.BadRequestError, openai.NotFoundError)):
            ask(oai, **options)
