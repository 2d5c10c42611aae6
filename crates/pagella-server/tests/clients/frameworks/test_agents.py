"""OpenAI's agents, over both of its dialects: a tool is called, its result goes back."""

import asyncio

import agents
import openai
import pytest

from server import API_KEY
from weather import QUESTION, get_weather


@pytest.mark.parametrize("kind", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def test_an_agent_calls_its_tool(server, kind):
    calls = []

    @agents.function_tool
    def tell_weather(city: str, days: int) -> str:
        """Tells the weather of a city."""
        calls.append((city, days))
        return get_weather(city, days)

    async def run():
        client = openai.AsyncOpenAI(base_url=server.base + "/v1", api_key=API_KEY, max_retries=0)
        settings = agents.ModelSettings(tool_choice="tell_weather", max_tokens=200, temperature=0, parallel_tool_calls=False)
        agent = agents.Agent("teller", model=kind("demo", client), tools=[tell_weather], model_settings=settings, tool_use_behavior="stop_on_first_tool")
        return (await agents.Runner.run(agent, QUESTION)).final_output

    said = asyncio.run(run())
    assert len(calls) == 1 and isinstance(calls[0][1], int) and said == get_weather(*calls[0])
