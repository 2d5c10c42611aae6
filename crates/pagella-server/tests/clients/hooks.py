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


# What there is not, and says so: models for embeddings alone, adapters.
ABSENT = {
    "/v1/model/embedding": "no_model_loaded",
    "/v1/model/embedding/load": "feature_disabled",
    "/v1/model/embedding/unload": "feature_disabled",
    "/v1/lora/load": "feature_disabled",
}


@schemathesis.check
def nothing_fails(context, response, case):
    """No answer is a 5xx, except of routes to what is absent."""
    if response.status_code >= 500:
        code = json.loads(response.content)["error"].get("code")
        assert code == ABSENT.get(case.operation.path), f"{response.status_code} {response.content[:300]}"


def event_schema(operation):
    answer = DOCUMENT["paths"][operation.path][operation.method]["responses"]["200"]
    return answer["content"].get("text/event-stream", {}).get("x-sse-events")


@schemathesis.check
def events_conform(context, response, case):
    """The JSON of every event of a stream is as `x-sse-events` says."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return None
    schema = event_schema(case.operation)
    assert schema, "a stream that is not documented"
    validator = jsonschema_rs.validator_for(schema | {"components": DOCUMENT["components"]})
    for line in response.content.decode().splitlines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            validator.validate(json.loads(data))
    return None
