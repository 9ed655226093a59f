"""Embeddings of all-MiniLM-L6-v2, against the vectors of `tests/embeddings/make_reference.py`."""

import json
import math
import os
from pathlib import Path

import openai
import pytest

REFERENCE = json.loads((Path(__file__).parents[2] / "embeddings/data/minilm.json").read_text())
TEXTS = [entry["text"] for entry in REFERENCE]


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(base_url=os.environ["MORTISE_BASE_URL"], api_key="none", max_retries=0)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def check(made):
    assert [item.index for item in made.data] == list(range(len(REFERENCE)))
    for item, entry in zip(made.data, REFERENCE, strict=True):
        assert math.isclose(math.hypot(*item.embedding), 1, abs_tol=1e-5)
        assert cosine(item.embedding, entry["vector"]) >= 0.9999, entry["text"]


# Without an encoding the client asks for base64.
@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}])
def test_a_batch_of_texts_has_the_vectors_of_the_reference(client, encoding):
    made = client.embeddings.create(model="model", input=TEXTS, **encoding)
    check(made)
    tokens = sum(len(entry["tokens"]) for entry in REFERENCE)
    assert made.usage.prompt_tokens == made.usage.total_tokens == tokens


def test_tokens_are_taken_as_they_are(client):
    check(client.embeddings.create(model="model", input=[entry["tokens"] for entry in REFERENCE]))
    one = client.embeddings.create(model="model", input=REFERENCE[0]["tokens"])
    assert cosine(one.data[0].embedding, REFERENCE[0]["vector"]) >= 0.9999


def test_a_text_alone_has_the_numbers_it_has_in_a_batch(client):
    batch = client.embeddings.create(model="model", input=TEXTS)
    alone = client.embeddings.create(model="model", input=TEXTS[2])
    assert alone.data[0].embedding == batch.data[2].embedding


def test_dimensions_are_those_of_the_model(client):
    made = client.embeddings.create(model="model", input="x", dimensions=384)
    assert len(made.data[0].embedding) == 384
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="model", input="x", dimensions=100)
    assert refused.value.param == "dimensions"


@pytest.mark.parametrize("wrong", ["", [], [[]], [[10**9]], {"a": 1}, [1.5], ["a", 1], "word " * 600])
def test_wrong_inputs_are_refused(client, wrong):
    if wrong == "":
        # An empty text still has the tokens around it.
        assert client.embeddings.create(model="model", input=wrong).usage.prompt_tokens == 2
        return
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="model", input=wrong)


def test_such_a_model_generates_no_text(client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="model", prompt="x")
