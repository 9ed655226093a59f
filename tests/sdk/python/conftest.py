"""The stock client against a running server. `MORTISE_BASE_URL` says where."""

import os

import openai
import pytest

MODEL = "mortise-demo"


@pytest.fixture(scope="session")
def base_url():
    return os.environ["MORTISE_BASE_URL"]


@pytest.fixture(scope="session")
def client(base_url):
    # No retries: an error must reach the test, not be papered over.
    return openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)


@pytest.fixture
def async_client(base_url):
    return openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)


@pytest.fixture
def ask(client):
    """One user turn, one answer."""

    def ask(text, **options):
        messages = [{"role": "user", "content": text}]
        return client.chat.completions.create(model=MODEL, messages=messages, **options)

    return ask
