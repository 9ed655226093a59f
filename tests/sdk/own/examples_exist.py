"""A plugin for OpenAI's own tests. They are written against a mock that knows every id of the specification's
examples. Before a request that names such an id, the thing is made on the server under test, and its id put in the
place of the example's, so that the answer is about something that exists."""

import functools
import re

import openai
from openai._base_client import BaseClient

MODEL = "mortise-demo"
MESSAGES = [{"role": "user", "content": "Hello"}]


@functools.cache
def server(base_url):
    return openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0)


def completion(client):
    # By the specification's types, all stored messages are the assistant's.
    messages = [{"role": "assistant", "content": "Hello"}]
    return client.chat.completions.create(model=MODEL, messages=messages, store=True, max_tokens=2).id


def response(client):
    # Made in the background, so that it can be streamed and cancelled.
    return client.responses.create(model=MODEL, input="Hello", background=True, max_output_tokens=64).id


def conversation(client):
    return client.conversations.create(items=MESSAGES).id


def item(client, conversation):
    return client.conversations.items.list(conversation).data[0].id


PATHS = [
    (re.compile(r"(/chat/completions/)completion_id"), completion),
    (re.compile(r"(/responses/)(?:resp_677efb5139a88190b512bc3fef8e535d|response_id)"), response),
    (re.compile(r"(/conversations/)conv_123"), conversation),
]
ITEM = re.compile(r"/conversations/([^/]+)/items/msg_abc")


def with_what_exists(url, client):
    for path, make in PATHS:
        if path.search(url):
            url = path.sub(lambda found, make=make: found[1] + make(client), url)
    if found := ITEM.search(url):
        url = url.replace("msg_abc", item(client, found[1]))
    return url


def first_entry(url, client):
    if url == "/chat/completions":
        completion(client)
    return client.get(url, cast_to=object)["data"][0]["id"]


def pytest_configure():
    build = BaseClient._build_request

    def build_request(self, options, **more):
        base_url = str(self.base_url)
        # What is made here goes the same way, and names nothing of the examples.
        client = server(base_url)
        options.url = with_what_exists(options.url, client)
        if options.params.get("after") == "after":
            options.params = {**options.params, "after": first_entry(options.url, client)}
        return build(self, options, **more)

    BaseClient._build_request = build_request
