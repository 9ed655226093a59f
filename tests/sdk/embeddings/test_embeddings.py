"""Embeddings of all-MiniLM-L6-v2, against the vectors of `tests/embeddings/make_reference.py`."""

import json
import math
import os
from pathlib import Path

import cohere
import httpx
import ollama
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


def test_dimensions_shorten_vectors(client):
    whole = client.embeddings.create(model="model", input="x", dimensions=384).data[0].embedding
    assert len(whole) == 384
    short = client.embeddings.create(model="model", input="x", dimensions=100).data[0].embedding
    assert len(short) == 100 and math.isclose(math.hypot(*short), 1, abs_tol=1e-5)
    assert math.isclose(cosine(short, whole[:100]), 1, abs_tol=1e-6)
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="model", input="x", dimensions=385)
    assert refused.value.param == "dimensions"


@pytest.mark.parametrize("wrong", ["", [], [[]], [[10**9]], {"a": 1}, [1.5], ["a", 1], "word " * 600])
def test_wrong_inputs_are_refused(client, wrong):
    if wrong == "":
        # An empty text still has the tokens around it.
        assert client.embeddings.create(model="model", input=wrong).usage.prompt_tokens == 2
        return
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="model", input=wrong)


def post(path, **body):
    url = os.environ["MORTISE_BASE_URL"].removesuffix("/v1") + path
    response = httpx.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


DOCUMENTS = ["Bananas are yellow.", "Paris is the capital of France.", "France is a country."]
QUERY = "What is the capital of France?"


def vectors(client):
    made = client.embeddings.create(model="model", input=[QUERY, *DOCUMENTS])
    return [item.embedding for item in made.data]


def test_documents_are_ranked_by_the_cosine_to_the_query(client):
    query, *others = vectors(client)
    expected = [cosine(query, other) for other in others]
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        made = post(path, model="model", query=QUERY, documents=DOCUMENTS, top_n=2, return_documents=True)
        assert [result["index"] for result in made["results"]] == [1, 2], path
        for result in made["results"]:
            assert math.isclose(result["relevance_score"], expected[result["index"]], abs_tol=1e-5)
            assert result["document"] == {"text": DOCUMENTS[result["index"]]}
        assert made["usage"]["total_tokens"] > 0
    made = post("/rerank", query=QUERY, texts=DOCUMENTS, return_text=True)
    assert [(row["index"], row["text"]) for row in made] == [(i, DOCUMENTS[i]) for i in (1, 2, 0)]
    objects = [{"title": "fruit", "text": DOCUMENTS[0]}, {"title": "town", "text": DOCUMENTS[1]}]
    made = post("/v1/rerank", query=QUERY, documents=objects, return_documents=True)
    assert made["results"][0]["document"] == objects[1]


def test_pairs_of_texts_are_scored(client):
    query, *others = vectors(client)
    for path in ("/score", "/v1/score"):
        data = post(path, model="model", text_1=QUERY, text_2=DOCUMENTS)["data"]
        for row, other in zip(data, others, strict=True):
            assert math.isclose(row["score"], cosine(query, other), abs_tol=1e-5)
    pairs = post("/score", text_1=DOCUMENTS[:2], text_2=DOCUMENTS[:2])["data"]
    assert all(math.isclose(row["score"], 1, abs_tol=1e-5) for row in pairs)


def test_the_cohere_client_reranks():
    client = cohere.ClientV2(api_key="unused", base_url=os.environ["MORTISE_BASE_URL"].removesuffix("/v1"))
    made = client.rerank(model="model", query=QUERY, documents=DOCUMENTS, top_n=1)
    assert [result.index for result in made.results] == [1] and made.results[0].relevance_score > 0.5


def test_vectors_in_the_shapes_of_others(client):
    texts = TEXTS[:3]
    expected = [entry["vector"] for entry in REFERENCE[:3]]
    host = os.environ["MORTISE_BASE_URL"].removesuffix("/v1")
    theirs = ollama.Client(host=host)
    for made in (
        post("/embed", inputs=texts),
        theirs.embed("model", texts).embeddings,
        [theirs.embeddings("model", text).embedding for text in texts],
    ):
        for vector, reference in zip(made, expected, strict=True):
            assert cosine(vector, reference) >= 0.9999
    assert len(theirs.embed("model", texts[0], dimensions=7).embeddings[0]) == 7
    # Longer than the context: cut unless the caller wants an error.
    assert theirs.embed("model", "word " * 600).prompt_eval_count < 600
    with pytest.raises(ollama.ResponseError):
        theirs.embed("model", "word " * 600, truncate=False)
    assert theirs.show("model").capabilities == ["embedding"]


def test_such_a_model_generates_no_text(client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="model", prompt="x")
