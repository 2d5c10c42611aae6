"""Ollama's client: chats, prompts, models, vectors, refusals."""

import json

import ollama
import pytest
from pydantic import BaseModel

from server import ADMIN_KEY, API_KEY

GREEDY = {"temperature": 0, "num_predict": 24}
QUESTION = [{"role": "user", "content": "What is an array?"}]


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.base, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=120)


def test_a_chat_is_the_same_whole_and_streamed(client, oai):
    whole = client.chat(model="demo", messages=QUESTION, options=GREEDY)
    pieces = list(client.chat(model="demo", messages=QUESTION, options=GREEDY, stream=True))
    assert whole.message.content == "".join(piece.message.content for piece in pieces) != ""
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    for last in (whole, pieces[-1]):
        assert last.done_reason in ("stop", "length")
        assert 0 < last.eval_count <= 24 and last.prompt_eval_count > 0
        assert last.total_duration >= last.eval_duration > 0
    other = oai.chat.completions.create(model="demo", messages=QUESTION, temperature=0, max_tokens=24)
    assert other.choices[0].message.content == whole.message.content


def test_a_prompt_is_the_same_whole_and_streamed(client):
    for options in ({}, {"raw": True}, {"system": "Be brief."}):
        whole = client.generate(model="demo", prompt="CSS is", options=GREEDY, **options)
        pieces = list(client.generate(model="demo", prompt="CSS is", options=GREEDY, stream=True, **options))
        assert whole.response == "".join(piece.response for piece in pieces)
        assert pieces[-1].done and pieces[-1].context == whole.context


def test_a_context_is_taken_up_again(client):
    first = client.generate(model="demo", prompt="What is CSS?", options=GREEDY)
    second = client.generate(model="demo", prompt="Why?", context=first.context, options=GREEDY)
    assert second.prompt_eval_count > len(first.context)


def test_an_empty_prompt_loads(client):
    assert client.generate(model="demo", prompt="").done_reason == "load"
    assert client.chat(model="demo", messages=[]).done_reason == "load"


def test_a_schema_of_pydantic_is_enforced(client):
    class Answer(BaseModel):
        yes: bool
        n: int

    answer = client.chat(model="demo", messages=QUESTION, format=Answer.model_json_schema(), options=GREEDY | {"num_predict": 200})
    Answer.model_validate_json(answer.message.content)
    text = client.generate(model="demo", prompt="JSON:", format="json", options={"temperature": 0, "num_predict": 400})
    if text.done_reason == "stop":
        assert isinstance(json.loads(text.response), dict)


def test_tools_are_functions(client):
    def get_time(city: str) -> str:
        """Tell the time.

        Args:
          city: Where.
        """
        return city

    answer = client.chat(model="demo", messages=QUESTION, tools=[get_time], options=GREEDY)
    for call in answer.message.tool_calls or []:
        assert call.function.name == "get_time" and isinstance(call.function.arguments, dict)
    history = QUESTION + [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_time", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "tool_name": "get_time", "content": "noon"},
    ]
    assert client.chat(model="demo", messages=history, tools=[get_time], options=GREEDY).done


def test_log_probabilities(client):
    answer = client.generate(model="demo", prompt="CSS is", options=GREEDY, logprobs=True, top_logprobs=2)
    assert len(answer.logprobs) == answer.eval_count
    assert all(len(token.top_logprobs) == 2 for token in answer.logprobs)


def test_models_are_listed_and_shown(client):
    names = [model.model for model in client.list().models]
    assert names == ["demo:latest"]
    shown = client.show(names[0])
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.context_length"] > 0
    assert {"completion", "tools"} <= set(shown.capabilities)
    running = client.ps().models[0]
    assert running.model == names[0] and running.context_length > 0
    assert client.pull("demo").status == "success"


def test_vectors(server):
    """The demo model declares no pooling, so the operator does."""
    from server import Server

    with Server("--embeddings.pooling", "mean") as own:
        client = ollama.Client(host=own.base, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=120)
        both = client.embed(model="demo", input=["an array", "a list"])
        assert len(both.embeddings) == 2 and both.prompt_eval_count > 0
        assert client.embed(model="demo", input="an array").embeddings[0] == both.embeddings[0]
        assert len(client.embeddings(model="demo", prompt="an array").embedding) == len(both.embeddings[0])


def test_errors_are_errors(client, server):
    for refused, status in (
        (lambda: client.show("nothing"), 404),
        (lambda: client.pull("llama3.2"), 501),
        (lambda: client.delete("demo"), 501),
        (lambda: client.copy("demo", "other"), 501),
        (lambda: client.create(model="x", from_="demo"), 501),
        (lambda: client.push("demo"), 501),
        (lambda: client.generate(model="demo", prompt="x", template="{{ .Prompt }}"), 400),
        (lambda: client.chat(model="demo", messages=QUESTION, options={"temperature": "hot"}), 400),
        (lambda: client.generate(model="demo", keep_alive=0), 403),
        (lambda: ollama.Client(host=server.base).list(), 401),
    ):
        with pytest.raises(ollama.ResponseError) as error:
            refused()
        assert error.value.status_code == status, error.value
        assert error.value.error and not error.value.error.startswith("{")


def test_a_stream_that_is_left_ends(client, server):
    stream = client.generate(model="demo", prompt="CSS is", stream=True, options={"num_predict": 1500, "ban_eos_token": True})
    next(stream)
    stream.close()
    server.wait_idle()


def test_an_administrator_is_known_by_the_same_header(server):
    admin = ollama.Client(host=server.base, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=120)
    assert any(model.model == "demo:latest" for model in admin.list().models)
