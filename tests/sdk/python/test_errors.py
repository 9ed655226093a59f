"""Every mistake comes back as the SDK's own exception with the field that was wrong."""

import openai
import pytest

from conftest import MODEL

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"presence_penalty": 9}, "presence_penalty"),
        ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stop": [""] * 2}, "stop"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
    ],
)
def test_bad_requests_name_the_field(client, options, param):
    request = {"model": MODEL, "messages": HELLO} | options
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request)
    assert caught.value.param is not None and caught.value.param.startswith(param)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.message


def test_an_unknown_field_is_told_its_neighbour(client):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(
            model=MODEL, messages=HELLO, extra_body={"temprature": 1}
        )


def test_a_schema_that_cannot_be_is_refused(client):
    with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError)):
        client.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": 5}},
            },
        )


def test_too_long_a_prompt_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 20000}]
        )
    assert caught.value.code == "context_length_exceeded"


def test_unknown_routes_are_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.images.generate(prompt="a mortise", model=MODEL)


def test_models_are_listed_and_found(client):
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).object == "model"
