"""instructor, in each of the ways in which it asks for structured output."""

import anthropic
import instructor
import openai
import pytest
from conftest import ADA, BASE_URL, HOST, MODEL, Person
from instructor import Mode

MESSAGES = [{"role": "user", "content": ADA}]


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(base_url=BASE_URL, api_key="unused", max_retries=0)


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON_SCHEMA, Mode.JSON])
def test_structured_output(client, mode, ada):
    patched = instructor.from_openai(client, mode=mode)
    options = {"model": MODEL, "response_model": Person, "messages": MESSAGES, "max_retries": 0}
    assert patched.create(**options).model_dump() == ada.model_dump()


def test_structured_output_while_it_is_made(client, ada):
    patched = instructor.from_openai(client, mode=Mode.TOOLS)
    pieces = list(patched.create_partial(model=MODEL, response_model=Person, messages=MESSAGES))
    assert pieces[-1].model_dump() == ada.model_dump() and len(pieces) > 3


def test_structured_output_of_anthropics_client(ada):
    client = anthropic.Anthropic(base_url=HOST, api_key="unused", max_retries=0)
    patched = instructor.from_anthropic(client, mode=Mode.TOOLS)
    options = {"model": MODEL, "response_model": Person, "messages": MESSAGES, "max_retries": 0}
    assert patched.create(max_tokens=200, **options).model_dump() == ada.model_dump()
