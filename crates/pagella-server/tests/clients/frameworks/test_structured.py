"""Libraries for typed answers: instructor, pydantic-ai, llama-index."""

import asyncio
from typing import Literal, Union

import instructor
import openai
import pytest
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from server import API_KEY
from weather import QUESTION, Weather


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Owner(BaseModel):
    """Somebody with a pet: pydantic writes a discriminator."""

    pet: Union[Cat, Dog] = Field(discriminator="kind")


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA], ids=lambda mode: mode.name)
@pytest.mark.parametrize("model", [Weather, Owner])
def test_instructor(server, mode, model):
    plain = openai.OpenAI(base_url=server.base + "/v1", api_key=API_KEY, max_retries=0)
    client = instructor.from_openai(plain, mode=mode)
    messages = [{"role": "user", "content": QUESTION}]
    found = client.chat.completions.create(model="demo", messages=messages, response_model=model, max_retries=0, max_tokens=200, temperature=0)
    assert isinstance(found, model)


def test_instructor_streams_partial_objects(server):
    plain = openai.OpenAI(base_url=server.base + "/v1", api_key=API_KEY, max_retries=0)
    client = instructor.from_openai(plain)
    partial = client.chat.completions.create_partial(model="demo", messages=[{"role": "user", "content": QUESTION}], response_model=Weather, max_tokens=200, temperature=0)
    last = list(partial)[-1]
    assert Weather.model_validate(last.model_dump())


def test_pydantic_ai(server):
    model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=server.base + "/v1", api_key=API_KEY))
    settings = {"max_tokens": 200, "temperature": 0, "parallel_tool_calls": False}
    agent = Agent(model, output_type=Weather, retries=0, model_settings=settings)
    assert isinstance(asyncio.run(agent.run(QUESTION)).output, Weather)


def test_llama_index(server):
    llm = OpenAILike(
        model="demo", api_base=server.base + "/v1", api_key=API_KEY, is_chat_model=True, is_function_calling_model=True,
        context_window=2048, max_tokens=200, temperature=0, max_retries=0,
    )
    assert llm.complete("Hello", max_tokens=4).text
    assert isinstance(llm.structured_predict(Weather, PromptTemplate("{question}"), question=QUESTION), Weather)
