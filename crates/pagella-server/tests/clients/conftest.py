"""One server for all suites; every test must leave it idle."""

import anthropic
import openai
import pytest

from server import API_KEY, Server


@pytest.fixture(scope="session")
def server():
    with Server() as running:
        yield running


@pytest.fixture(autouse=True)
def leaves_nothing_behind(server):
    yield
    server.wait_idle()


@pytest.fixture(scope="session")
def oai(server):
    """OpenAI's client, without retries: what fails is to be seen."""
    return openai.OpenAI(base_url=server.base + "/v1", api_key=API_KEY, max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def ant(server):
    """Anthropic's client, without retries."""
    return anthropic.Anthropic(base_url=server.base, api_key=API_KEY, max_retries=0, timeout=120)
