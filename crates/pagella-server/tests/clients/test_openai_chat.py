"""OpenAI's client: chat, streams, seeds, choices, log-probabilities, structured output."""

import enum
import json
import math

import pydantic
import pytest

HELLO = [{"role": "user", "content": "What is an array?"}]


def ask(oai, **options):
    fields = {"model": "demo", "messages": HELLO, "max_tokens": 16, "temperature": 0} | options
    return oai.chat.completions.create(**fields)


def joined(stream):
    """Text, last reason and usage of a stream."""
    text, reason, usage = "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason, usage


def test_a_conversation_is_answered(oai):
    answer = ask(oai, messages=[{"role": "system", "content": "Be brief."}, *HELLO])
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.model == "demo"
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.completion_tokens <= 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same_as_an_answer(oai):
    for options in ({"temperature": 0}, {"temperature": 1.0, "seed": 7}):
        whole = ask(oai, **options)
        stream = ask(oai, stream=True, stream_options={"include_usage": True}, **options)
        text, reason, usage = joined(stream)
        assert text == whole.choices[0].message.content
        assert reason == whole.choices[0].finish_reason
        assert usage.completion_tokens == whole.usage.completion_tokens


def test_the_stream_helper_accumulates(oai):
    """The helper refuses answers that were cut, so a pattern lets this one end."""
    options = {"max_tokens": 40, "extra_body": {"regex_pattern": "[a-z]{3,9} [a-z]{3,9}\\."}}
    with oai.chat.completions.stream(model="demo", messages=HELLO, temperature=0, **options) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content
    assert final.choices[0].message.content == ask(oai, **options).choices[0].message.content


def test_a_seed_repeats_an_answer(oai):
    texts = [ask(oai, temperature=1.0, seed=seed).choices[0].message.content for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    unseeded = ask(oai, temperature=1.0)
    again = ask(oai, temperature=1.0, seed=unseeded.model_extra["seed"])
    assert again.choices[0].message.content == unseeded.choices[0].message.content


def test_several_choices(oai):
    answer = ask(oai, n=3, temperature=1.0, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) > 1
    streamed = ["", "", ""]
    for chunk in ask(oai, n=3, temperature=1.0, seed=5, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_log_probabilities(oai):
    answer = ask(oai, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens or answer.choices[0].finish_reason == "stop"
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 4
        # Greedy: the token is the most likely one.
        assert math.isclose(token.logprob, token.top_logprobs[0].logprob, abs_tol=1e-5)
    spelled = b"".join(bytes(token.bytes) for token in content).decode("utf-8", "replace")
    assert spelled.startswith(answer.choices[0].message.content)


def test_a_stop_string_ends_the_answer(oai):
    text = ask(oai, max_tokens=24).choices[0].message.content
    stop = text[len(text) // 2 :][:3]
    answer = ask(oai, max_tokens=24, stop=[stop])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == text[: text.index(stop)]


def test_logit_bias_forces_a_token(oai):
    answer = ask(oai, max_tokens=4, logit_bias={"65": 100}, extra_body={"return_token_ids": True})
    assert answer.choices[0].model_extra["token_ids"] == [65] * 4


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Item(pydantic.BaseModel):
    colour: Colour
    count: int = pydantic.Field(ge=0, le=99)
    sold: bool


class Order(pydantic.BaseModel):
    items: list[Item] = pydantic.Field(min_length=1, max_length=2)
    paid: bool


@pytest.mark.parametrize("seed", range(4))
def test_structured_output_with_pydantic(oai, seed):
    answer = oai.chat.completions.parse(model="demo", messages=HELLO, response_format=Order, max_tokens=200, temperature=1.0, seed=seed)
    order = answer.choices[0].message.parsed
    assert isinstance(order, Order) and 1 <= len(order.items) <= 2
    assert answer.choices[0].finish_reason == "stop"


def test_structured_output_streams(oai):
    with oai.chat.completions.stream(model="demo", messages=HELLO, response_format=Item, max_tokens=100, temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Item)


def test_json_mode(oai):
    for seed in range(8):
        [choice] = ask(oai, response_format={"type": "json_object"}, max_tokens=400, temperature=1.5, seed=seed).choices
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
            return
    raise AssertionError("no answer came to its end")


def test_completions(oai):
    answer = oai.completions.create(model="demo", prompt=["Once", "Twice"], max_tokens=6, temperature=0, logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(len(choice.logprobs.tokens) <= 6 for choice in answer.choices)
    stream = oai.completions.create(model="demo", prompt="Once", max_tokens=6, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == answer.choices[0].text


def test_models_are_listed(oai):
    assert [model.id for model in oai.models.list()] == ["demo"]
    assert oai.models.retrieve("demo").id == "demo"
