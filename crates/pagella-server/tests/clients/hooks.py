"""What the description's tester needs to know of us: streams are cut, and their events are held to their schema."""

import json
import os
import urllib.request

import jsonschema_rs
import schemathesis

with urllib.request.urlopen(os.environ["PAGELLA_OPENAPI"]) as answer:
    DOCUMENT = json.load(answer)


@schemathesis.hook
def before_call(context, case, kwargs):
    """No streams that never end, and no time limit that is meant to be missed."""
    if case.query and case.query.get("stream") not in (None, "0", "false"):
        case.query["stream"] = "0"
    if isinstance(case.body, dict):
        case.body.pop("timeout", None)


# What there is not, and says so: models for embeddings alone. Ollama's errors are a sentence.
ABSENT = {
    "/v1/model/embedding": "no_model_loaded",
    "/v1/model/embedding/load": "feature_disabled",
    "/v1/model/embedding/unload": "feature_disabled",
    "/api/pull": "not fetched here",
    "/api/push": "not changed here",
    "/api/create": "not changed here",
    "/api/copy": "not changed here",
    "/api/delete": "not changed here",
}


@schemathesis.check
def nothing_fails(context, response, case):
    """No answer is a 5xx, except of routes to what is absent."""
    if response.status_code >= 500:
        error = json.loads(response.content)["error"]
        known = ABSENT.get(case.operation.path)
        absent = known and (known in error if isinstance(error, str) else known == error.get("code"))
        assert absent, f"{response.status_code} {response.content[:300]}"


def stream_schema(operation, kind, key):
    answer = DOCUMENT["paths"][operation.path][operation.method]["responses"]["200"]
    return answer["content"].get(kind, {}).get(key)


@schemathesis.check
def events_conform(context, response, case):
    """The JSON of every event of a stream is as `x-sse-events` says, that of every line as `x-lines`."""
    kind = response.headers.get("content-type", [""])[0].split(";")[0]
    keys = {"text/event-stream": "x-sse-events", "application/x-ndjson": "x-lines"}
    if kind not in keys:
        return None
    schema = stream_schema(case.operation, kind, keys[kind])
    assert schema, "a stream that is not documented"
    validator = jsonschema_rs.validator_for(schema | {"components": DOCUMENT["components"]})
    for line in response.content.decode().split("\n"):
        data = line if kind == "application/x-ndjson" else line.removeprefix("data: ")
        is_data = line and (data != line or kind == "application/x-ndjson")
        if is_data and data != "[DONE]":
            validator.validate(json.loads(data))
    return None
