"""OpenAI's client: errors become its exceptions, retries work, streams can be left."""

import concurrent.futures
import time

import openai
import pytest

from server import API_KEY, NARROW_KEY

HELLO = [{"role": "user", "content": "Tell a long story."}]


def client(server, key=API_KEY, **options):
    return openai.OpenAI(base_url=server.base + "/v1", api_key=key, **({"max_retries": 0, "timeout": 60} | options))


def long_stream(oai):
    return oai.chat.completions.create(model="demo", messages=HELLO, max_tokens=3000, stream=True, extra_body={"ban_eos_token": True})


def test_a_wrong_key_is_an_authentication_error(server):
    with pytest.raises(openai.AuthenticationError) as raised:
        client(server, "wrong-secret").models.list()
    assert raised.value.status_code == 401 and raised.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("options", "param", "code"),
    [
        ({"temperature": 99}, "temperature", "out_of_range"),
        ({"messages": []}, "messages", "out_of_range"),
        ({"messages": [{"role": "user", "content": "x " * 40000}]}, "messages", "context_length_exceeded"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}}, None, "invalid_schema"),
        ({"extra_body": {"top_k": "many"}}, "top_k", "invalid_type"),
    ],
)
def test_a_wrong_request_is_a_bad_request_error(oai, options, param, code):
    with pytest.raises(openai.BadRequestError) as raised:
        oai.chat.completions.create(**({"model": "demo", "messages": HELLO, "max_tokens": 4} | options))
    error = raised.value
    assert error.code == code and (param is None or error.param == param), error
    assert error.type == "invalid_request_error" and error.request_id


def test_what_is_absent_is_a_not_found_error(oai):
    with pytest.raises(openai.NotFoundError) as raised:
        oai.models.retrieve("no-such-model")
    assert raised.value.code == "model_not_found"


def test_a_full_queue_is_a_rate_limit_error_and_retries_get_through(server):
    stream = long_stream(client(server, NARROW_KEY))
    next(iter(stream))
    hello = {"model": "demo", "messages": HELLO, "max_tokens": 2}
    with pytest.raises(openai.RateLimitError) as raised:
        client(server, NARROW_KEY).chat.completions.create(**hello)
    assert raised.value.code == "key_queue_full" and raised.value.response.headers["retry-after"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        patient = pool.submit(client(server, NARROW_KEY, max_retries=8).chat.completions.create, **hello)
        time.sleep(0.2)
        stream.close()
        assert patient.result(60).choices[0].message.content is not None


def test_errors_that_cannot_pass_are_not_retried(server):
    oai = client(server, max_retries=5)
    begun = time.monotonic()
    with pytest.raises(openai.BadRequestError):
        oai.chat.completions.create(model="demo", messages=HELLO, temperature=99)
    assert time.monotonic() - begun < 5


def test_leaving_a_stream_ends_its_job(server, oai):
    stream = long_stream(oai)
    for _, _ in zip(range(5), stream):
        pass
    assert server.get("/v1/requests")["data"]
    stream.close()
    server.wait_idle()


def test_a_clients_time_limit_ends_its_job(server):
    oai = client(server, timeout=0.5)
    with pytest.raises(openai.APITimeoutError):
        oai.chat.completions.create(model="demo", messages=HELLO, max_tokens=8000, extra_body={"ban_eos_token": True})
    server.wait_idle()


def test_a_deadline_is_a_server_error_that_is_not_retried(server):
    oai = client(server, max_retries=5)
    with pytest.raises(openai.APIStatusError) as raised:
        oai.chat.completions.create(model="demo", messages=HELLO, max_tokens=8000, extra_body={"ban_eos_token": True, "timeout": 0.2})
    assert raised.value.status_code == 504 and raised.value.code == "deadline_exceeded"
