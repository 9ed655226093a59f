"""The stock client's vector stores, and `file_search` in responses. `MORTISE_BASE_URL` says where."""

import os

import openai
import pytest

TEXT = b"# Contract\n\nClause one names the parties.\n\n## Term\n\nThe zebra agreement ends after a year.\n"


@pytest.fixture(scope="session")
def client():
    url = os.environ["MORTISE_BASE_URL"]
    return openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def store(client):
    made = client.vector_stores.create(name="contracts")
    file = client.vector_stores.files.upload_and_poll(
        vector_store_id=made.id, file=("contract.md", TEXT)
    )
    assert file.status == "completed"
    return made.id


def asking(store):
    return {
        "model": "scripted",
        "input": "When does the zebra agreement end?",
        "tools": [{"type": "file_search", "vector_store_ids": [store], "max_num_results": 3}],
        "include": ["file_search_call.results"],
    }


def check(response):
    search, message = response.output
    assert (search.type, search.status, search.queries) == ("file_search_call", "completed", ["zebra"])
    assert any("ends after a year" in row.text for row in search.results)
    assert search.results[0].filename == "contract.md"
    (part,) = message.content
    (cited,) = part.annotations
    assert (cited.type, cited.filename) == ("file_citation", "contract.md")
    assert cited.file_id == search.results[0].file_id
    assert part.text[cited.index:] == "[1]."


def test_an_answer_cites_its_files(client, store):
    check(client.responses.create(**asking(store)))


def test_a_stream_tells_of_the_search(client, store):
    with client.responses.stream(**asking(store)) as stream:
        kinds = [event.type for event in stream]
        check(stream.get_final_response())
    for kind in ["in_progress", "searching", "completed"]:
        assert kinds.count(f"response.file_search_call.{kind}") == 1
    assert kinds.count("response.output_text.annotation.added") == 1


def test_a_conversation_goes_on_with_the_search(client, store):
    first = client.responses.create(**asking(store))
    again = client.responses.create(
        model="scripted", input="thanks", previous_response_id=first.id
    )
    assert again.status == "completed"


def test_a_store_of_nobody_is_named(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.responses.create(**asking("vs_absent"))
    assert refused.value.param == "tools[0].vector_store_ids[0]"
