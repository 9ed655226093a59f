"""The stock client against a server that has a calculator. `MORTISE_BASE_URL` says where."""

import json
import os

import openai
import pytest

MODEL = "mortise-demo"
# 17 times 23, which the model itself does not know.
QUESTION = [{"role": "user", "content": "What is 17 * 23?"}]
CALCULATE = {"type": "function", "function": {"name": "calculate"}}
OPTIONS = {
    "model": MODEL,
    "messages": QUESTION,
    "tool_choice": CALCULATE,
    "extra_body": {"server_tools": ["calculate"]},
}


@pytest.fixture(scope="session")
def client():
    url = os.environ["MORTISE_BASE_URL"]
    return openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=120)


def check(choice):
    assert choice.finish_reason == "stop"
    assert "391" in choice.message.content
    assert not choice.message.tool_calls
    (call,) = choice.message.server_tool_calls
    assert (call["name"], call["outcome"], call["output"]) == ("calculate", "answered", "391")
    assert "17" in json.loads(call["arguments"])["expression"]


def test_the_server_calls_the_tool_itself(client):
    answer = client.chat.completions.create(**OPTIONS)
    check(answer.choices[0])
    assert answer.usage.prompt_tokens_details.cached_tokens > 0


def test_the_clients_stream_helper_puts_the_same_together(client):
    with client.chat.completions.stream(**OPTIONS) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert "content.delta" in kinds
    check(answer.choices[0])


def test_without_opting_in_the_tool_does_not_exist(client):
    options = {**OPTIONS, "extra_body": {}, "tool_choice": openai.omit}
    choice = client.chat.completions.create(**options).choices[0]
    assert not hasattr(choice.message, "server_tool_calls")


def test_an_unknown_tool_is_told(client):
    options = {**OPTIONS, "extra_body": {"server_tools": ["abacus"]}, "tool_choice": openai.omit}
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(**options)
    assert error.value.param == "server_tools[0]"
    assert error.value.code == "unknown_server_tool"
