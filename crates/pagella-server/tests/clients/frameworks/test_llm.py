"""`llm`, a program for the command line, set up as its documentation says."""

import json
import os
import subprocess
import sys

import pytest

from server import API_KEY


@pytest.fixture(scope="module")
def llm(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("llm")
    model = {"model_id": "pagella", "model_name": "demo", "api_base": server.base + "/v1", "supports_schema": True, "supports_tools": True, "api_key_name": "pagella"}
    (home / "keys.json").write_text(json.dumps({"pagella": API_KEY}))
    (home / "extra-openai-models.yaml").write_text(json.dumps([model]))

    def run(*arguments):
        environment = os.environ | {"LLM_USER_PATH": str(home)}
        command = [sys.executable, "-m", "llm", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_prompt_is_answered(llm):
    assert llm("-m", "pagella", "-o", "max_tokens", "8", "What is an array?").strip()


def test_an_answer_follows_a_schema(llm):
    age = {"type": "integer", "minimum": 0, "maximum": 99}
    schema = {"type": "object", "properties": {"age": age, "clever": {"type": "boolean"}}, "required": ["age", "clever"], "additionalProperties": False}
    answer = llm("-m", "pagella", "-o", "max_tokens", "100", "--schema", json.dumps(schema), "A dog")
    assert set(json.loads(answer)) == {"age", "clever"}
