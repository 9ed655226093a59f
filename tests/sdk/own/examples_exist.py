"""A plugin for OpenAI's own tests. They are written against a mock that knows every id of the specification's
examples. Before a request that names such an id, the thing is made on the server under test, and its id put in the
place of the example's, so that the answer is about something that exists. Requests for responses that leave out what
OpenAI's service requires, the model and the input, which the mock does not look for, get them."""

import functools
import itertools
import json
import os
import pathlib
import re

import openai
from openai._base_client import BaseClient

MODEL = "mortise-demo"
MESSAGES = [{"role": "user", "content": "Hello"}]
# By the specification's types, messages that are stored or compacted are the assistant's.
ASSISTANT = [{"role": "assistant", "content": "Hello"}]


@functools.cache
def server(base_url):
    return openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0)


def completion(client):
    return client.chat.completions.create(model=MODEL, messages=ASSISTANT, store=True, max_tokens=2).id


def response(client):
    # Made in the background, so that it can be streamed and cancelled.
    return client.responses.create(model=MODEL, input="Hello", background=True, max_output_tokens=64).id


def conversation(client):
    return client.conversations.create(items=MESSAGES).id


def item(client, conversation):
    return client.conversations.items.list(conversation).data[0].id


def file(client):
    return client.files.create(file=("one.md", b"One line."), purpose="user_data").id


def input_file(client, lines=1, **more):
    body = {"model": MODEL, "input": "Hello", **more}
    line = {"method": "POST", "url": "/v1/responses", "body": body}
    text = "\n".join(json.dumps({"custom_id": str(number), **line}) for number in range(lines))
    return client.files.create(file=("in.jsonl", text.encode()), purpose="batch").id


def batch(client, input_file=input_file):
    options = {"endpoint": "/v1/responses", "completion_window": "24h"}
    return client.batches.create(input_file_id=input_file(client), **options).id


def long_batch(client):
    """A batch that has not ended when it is cancelled."""
    return batch(client, functools.partial(input_file, lines=200, max_output_tokens=1000))


def vector_store(client):
    return client.vector_stores.create(name="examples").id


def attached(client, store):
    return client.vector_stores.files.create(store, file_id=file(client)).id


# Names of models that were uploaded.
UPLOADED = (f"uploaded-{number}" for number in itertools.count())


def uploaded(client):
    """A model that may be deleted, where the server has an admin side for the tests."""
    admin = os.environ.get("MORTISE_ADMIN_URL")
    if not admin:
        return "absent"
    name = next(UPLOADED)
    files = [("file", (path.name, path.read_bytes())) for path in pathlib.Path(os.environ["MORTISE_UPLOAD"]).iterdir()]
    url = f"{admin}/v1/admin/models/ingest"
    key = {"authorization": f"Bearer {os.environ['MORTISE_ADMIN_KEY']}"}
    client._client.post(url, data={"model_id": name}, files=files, headers=key).raise_for_status()
    return name


PATHS = [
    (re.compile(r"(/chat/completions/)completion_id"), completion),
    (re.compile(r"(/responses/)(?:resp_677efb5139a88190b512bc3fef8e535d|response_id)"), response),
    (re.compile(r"(/conversations/)conv_123"), conversation),
    (re.compile(r"(^/files/)file_id"), file),
    (re.compile(r"(/batches/)batch_id(?=/cancel)"), long_batch),
    (re.compile(r"(/batches/)batch_id"), batch),
    (re.compile(r"(/vector_stores/)(?:vs_abc123|vector_store_id)"), vector_store),
]
# Members of bodies that name what exists.
MEMBERS = {"file_id": file, "input_file_id": input_file}
ATTACHED = re.compile(r"/vector_stores/([^/]+)/files/(?:file-abc123|file_id)")
MODEL_TO_DELETE = re.compile(r"(/models/)ft:gpt-4o-mini:acemeco:suffix:abc123")
ITEM = re.compile(r"/conversations/([^/]+)/items/msg_abc")


# Routes that need a model and an input.
GENERATING = {"/responses", "/responses/compact", "/responses/input_tokens"}


def complete(body, client):
    """The body of a request for a response, with what the service requires."""
    if body.get("previous_response_id") == "resp_123" and "conversation" not in body:
        body = {**body, "previous_response_id": response(client)}
    if "prompt" in body:
        return {"model": MODEL, **body}
    return {"model": MODEL, "input": ASSISTANT, **body}


def with_what_exists(url, client):
    for path, make in PATHS:
        if path.search(url):
            url = path.sub(lambda found, make=make: found[1] + make(client), url)
    if found := ITEM.search(url):
        url = url.replace("msg_abc", item(client, found[1]))
    if found := ATTACHED.search(url):
        url = url.replace(url[found.end(1) : found.end()], f"/files/{attached(client, found[1])}")
    return url


# What there is at least one of in a list.
MAKERS = {"/chat/completions": completion, "/files": file, "/batches": batch, "/vector_stores": vector_store}


def first_entry(url, client):
    if url in MAKERS:
        MAKERS[url](client)
    return client.get(url, cast_to=object)["data"][0]["id"]


def pytest_configure():
    build = BaseClient._build_request

    def build_request(self, options, **more):
        base_url = str(self.base_url)
        # What is made here goes the same way, and names nothing of the examples.
        client = server(base_url)
        options.url = with_what_exists(options.url, client)
        if options.method.lower() == "delete" and MODEL_TO_DELETE.search(options.url):
            options.url = MODEL_TO_DELETE.sub(lambda found: found[1] + uploaded(client), options.url)
        if options.method.lower() == "post" and options.url in GENERATING:
            options.json_data = complete(options.json_data or {}, client)
        if isinstance(options.json_data, dict):
            made = {name: make(client) for name, make in MEMBERS.items() if options.json_data.get(name) == name}
            options.json_data = {**options.json_data, **made}
        if options.params.get("after") == "after":
            options.params = {**options.params, "after": first_entry(options.url, client)}
        return build(self, options, **more)

    BaseClient._build_request = build_request
