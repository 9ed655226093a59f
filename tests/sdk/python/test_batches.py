"""Files and batches through the stock client: upload, create, poll, read the results."""

import json
import time

import openai
import pytest

from conftest import MODEL


def line(custom_id, body, url="/v1/chat/completions"):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": MODEL, **body}})


def ask(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def upload(client, *lines):
    return client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")


def finished(client, batch):
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def test_a_batch_from_upload_to_results(client):
    file = upload(client, line("one", ask("What is mortise?")), line("wrong", ask("Hi", temperature=9)))
    assert (file.object, file.purpose, file.filename) == ("file", "batch", "in.jsonl")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"of": "a test"},
    )
    assert batch.metadata == {"of": "a test"} and batch.status == "validating"
    batch = finished(client, batch)
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 2, 1, 1)
    [answer] = [json.loads(text) for text in client.files.content(batch.output_file_id).text.splitlines()]
    completion = openai.types.chat.ChatCompletion.model_validate(answer["response"]["body"])
    direct = client.chat.completions.create(model=MODEL, **ask("What is mortise?"))
    assert answer["custom_id"] == "one"
    assert completion.choices[0].message.content == direct.choices[0].message.content
    assert batch.usage.output_tokens == direct.usage.completion_tokens
    [error] = [json.loads(text) for text in client.files.content(batch.error_file_id).text.splitlines()]
    assert error["response"]["status_code"] == 400
    assert error["response"]["body"]["error"]["param"] == "temperature"
    assert batch.id in [listed.id for listed in client.batches.list(limit=5)]
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_wrong_lines_are_named(client):
    good = line("one", ask("Hi"))
    batch = client.batches.create(
        input_file_id=upload(client, good, "{", good).id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
    )
    batch = finished(client, batch)
    assert batch.status == "failed"
    assert [(error.code, error.line) for error in batch.errors.data] == [
        ("invalid_json_line", 2),
        ("duplicate_custom_id", 3),
    ]


def test_files_are_kept_until_they_are_deleted(client):
    content = bytes(range(256)) * 2000
    file = client.files.create(
        file=("some.bin", content),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 7200},
    )
    assert file.expires_at == file.created_at + 7200 and file.bytes == len(content)
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == content
    assert file.id in [listed.id for listed in client.files.list(purpose="user_data", limit=1)]
    assert client.files.wait_for_processing(file.id).status == "processed"
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


@pytest.mark.asyncio
async def test_a_batch_is_cancelled(async_client):
    lines = [line(str(number), ask("What is mortise?", max_tokens=200)) for number in range(200)]
    file = await async_client.files.create(file="\n".join(lines).encode(), purpose="batch")
    batch = await async_client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    batch = await async_client.batches.cancel(batch.id)
    assert batch.status in ("cancelling", "cancelled")
    while batch.status != "cancelled":
        batch = await async_client.batches.retrieve(batch.id)
    assert batch.cancelled_at
