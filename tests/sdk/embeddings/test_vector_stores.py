"""Vector stores by the official client: what is found by the meaning of a real model, and by words."""

import os

import openai
import pytest

TEXTS = {
    "cats.md": "# Cats\n\nKittens sleep for most of the day, and purr when someone strokes them.\n",
    "bread.txt": "Knead the dough for ten minutes, let it rise in a warm place, then bake it.\n",
    "rockets.html": "<h1>Rockets</h1><p>The launch vehicle reached orbit after its second stage burned out.</p>",
    "contract.txt": "Clause 3.4: the lessee pays the deposit XK-4711 within fourteen days.\n",
}


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(base_url=os.environ["MORTISE_BASE_URL"], api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def store(client):
    store = client.vector_stores.create(name="all", metadata={"kind": "test"})
    for name, text in TEXTS.items():
        file = client.files.create(file=(name, text.encode()), purpose="user_data")
        attached = client.vector_stores.files.create_and_poll(
            file.id, vector_store_id=store.id, attributes={"length": len(text)}, poll_interval_ms=100)
        assert attached.status == "completed", attached.last_error
    store = client.vector_stores.retrieve(store.id)
    assert store.file_counts.completed == store.file_counts.total == len(TEXTS)
    assert store.status == "completed" and store.usage_bytes > 0
    yield store
    assert client.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve(store.id)


@pytest.mark.parametrize("query, name", [
    ("pets that enjoy petting", "cats.md"),
    ("how do I make a loaf?", "bread.txt"),
    ("space flight", "rockets.html"),
    ("how soon is the security payment due?", "contract.txt"),
])
@pytest.mark.parametrize("ranker", ["auto", "none"])
def test_documents_are_found_by_their_meaning(client, store, query, name, ranker):
    page = client.vector_stores.search(store.id, query=query, ranking_options={"ranker": ranker})
    assert page.data[0].filename == name, [(one.filename, one.score) for one in page.data]
    scores = [one.score for one in page.data]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)


def test_a_word_that_no_model_knows_is_found(client, store):
    page = client.vector_stores.search(store.id, query="XK 4711", max_num_results=1)
    assert page.data[0].filename == "contract.txt"
    assert "XK-4711" in page.data[0].content[0].text


def test_filters_and_thresholds_leave_documents_out(client, store):
    short = {"type": "lt", "key": "length", "value": len(TEXTS["cats.md"])}
    page = client.vector_stores.search(store.id, query="kittens", filters=short)
    assert "cats.md" not in {one.filename for one in page.data} and page.data
    options = {"ranker": "none", "score_threshold": 0.99}
    assert not client.vector_stores.search(store.id, query="kittens", ranking_options=options).data


def test_files_are_listed_and_their_chunks_read(client, store):
    files = list(client.vector_stores.files.list(store.id, limit=2))
    assert {file.id for file in files} == {file.id for file in client.vector_stores.files.list(store.id)}
    assert len(files) == len(TEXTS)
    names = {client.files.retrieve(file.id).filename: file.id for file in files}
    chunks = list(client.vector_stores.files.content(names["rockets.html"], vector_store_id=store.id))
    assert chunks[0].text.startswith("# Rockets\n\nThe launch vehicle")
    changed = client.vector_stores.files.update(
        names["cats.md"], vector_store_id=store.id, attributes={"animal": True})
    assert changed.attributes == {"animal": True}
    animals = {"type": "eq", "key": "animal", "value": True}
    page = client.vector_stores.search(store.id, query="bread", filters=animals)
    assert [one.filename for one in page.data] == ["cats.md"]


def test_a_pdf_fails_by_name(client, store):
    file = client.files.create(file=("a.pdf", b"%PDF-1.7"), purpose="user_data")
    attached = client.vector_stores.files.create_and_poll(
        file.id, vector_store_id=store.id, poll_interval_ms=100)
    assert attached.status == "failed" and "PDF" in attached.last_error.message
    assert client.vector_stores.files.delete(file.id, vector_store_id=store.id).deleted
