"""OpenAI's client: embeddings."""

import math

import openai
import pytest


def test_texts_become_vectors(oai):
    """The demo model declares no pooling, so the request says which."""
    answer = oai.embeddings.create(model="demo", input=["an array", "a list", "an array"], extra_body={"pooling": "mean"})
    vectors = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert vectors[0] == vectors[2] != vectors[1]
    for vector in vectors:
        assert math.isclose(sum(x * x for x in vector), 1.0, rel_tol=1e-3)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0


def test_numbers_and_base64_say_the_same(oai):
    floats = oai.embeddings.create(model="demo", input="an array", encoding_format="float", extra_body={"pooling": "last"})
    packed = oai.embeddings.create(model="demo", input="an array", extra_body={"pooling": "last"})
    for a, b in zip(floats.data[0].embedding, packed.data[0].embedding, strict=True):
        assert math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7)


def test_what_cannot_be_done_is_refused(oai):
    for options in ({"input": "x"}, {"input": "x", "dimensions": 3, "extra_body": {"pooling": "mean"}}, {"input": [], "extra_body": {"pooling": "mean"}}):
        with pytest.raises(openai.BadRequestError):
            oai.embeddings.create(**({"model": "demo"} | options))
