"""The stock Ollama client against a running server."""

import json
import os

import ollama
import pytest

MODEL = "mortise-demo"
HOST = os.environ["MORTISE_BASE_URL"].removesuffix("/v1")
PARIS = "What is the weather in Paris?"


@pytest.fixture(scope="session")
def client():
    return ollama.Client(host=HOST, timeout=120)


def get_weather(location: str) -> str:
    """Get the current weather for a location.

    Args:
      location: City name
    """
    return json.dumps({"temperature": 18, "condition": "sunny"})


def test_a_chat_whole_and_streamed(client):
    messages = [{"role": "user", "content": "What is mortise?"}]
    options = {"temperature": 0, "num_ctx": 1024}
    whole = client.chat(MODEL, messages, options=options)
    assert whole.done and whole.done_reason == "stop" and whole.model == MODEL
    assert "mortise" in whole.message.content.lower()
    assert whole.prompt_eval_count > 0 and whole.eval_count > 0
    assert whole.total_duration >= whole.eval_duration
    pieces = list(client.chat(MODEL, messages, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert len(pieces) > 3 and [piece.done for piece in pieces[-2:]] == [False, True]
    assert pieces[-1].eval_count == whole.eval_count


def test_several_turns(client):
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    first = client.chat(MODEL, messages)
    messages += [first.message, {"role": "user", "content": "Thank you!"}]
    assert client.chat(MODEL, messages).message.content


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_used(client, streamed):
    messages = [{"role": "user", "content": PARIS}]
    answer = client.chat(MODEL, messages, tools=[get_weather], stream=streamed)
    if streamed:
        calls = [call for piece in answer for call in piece.message.tool_calls or []]
        message = ollama.Message(role="assistant", content="", tool_calls=calls)
    else:
        message, calls = answer.message, answer.message.tool_calls
    (call,) = calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"location": "Paris"})
    messages += [message, {"role": "tool", "content": get_weather("Paris"), "tool_name": "get_weather"}]
    second = client.chat(MODEL, messages, tools=[get_weather])
    assert "18" in second.message.content and "sunny" in second.message.content


def test_thinking_is_apart(client):
    messages = [{"role": "user", "content": "What is 17 + 25?"}]
    thought = client.chat(MODEL, messages, think=True)
    assert thought.message.thinking and "42" in thought.message.content
    text = client.generate(MODEL, "What is 17 + 25?", think=True)
    assert text.thinking and "42" in text.response


def test_formats(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
    answer = client.chat(MODEL, [{"role": "user", "content": "Ada is 36 years old."}], format=schema, options={"num_predict": 200})
    assert isinstance(json.loads(answer.message.content)["age"], int)
    answer = client.generate(MODEL, "Say something.", format="json", options={"num_predict": 300, "seed": 1})
    if answer.done_reason == "stop":
        assert isinstance(json.loads(answer.response), dict)


def test_logprobs(client):
    answer = client.generate(MODEL, "What is mortise?", logprobs=True, top_logprobs=2, options={"num_predict": 3})
    assert len(answer.logprobs) == 3
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in answer.logprobs)


def test_an_empty_request_loads_the_model(client):
    assert client.generate(MODEL).done_reason == "load"
    assert client.chat(MODEL).done_reason == "load"


def test_models(client):
    assert MODEL in [model.model for model in client.list().models]
    (running,) = client.ps().models
    assert running.model == MODEL and running.context_length > 0
    shown = client.show(MODEL)
    assert "completion" in shown.capabilities and "tools" in shown.capabilities
    assert shown.template and shown.modelinfo
    assert client.show(MODEL + ":latest").capabilities == shown.capabilities


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda c: c.chat(MODEL, [{"role": "user", "content": "?"}], keep_alive="1h"), "`keep_alive`"),
        (lambda c: c.chat(MODEL, [{"role": "user", "content": "?", "images": [b"x"]}]), "`messages[0].images`"),
        (lambda c: c.chat(MODEL, [{"role": "user", "content": "?"}], options={"mirostat": 2}), "`options.mirostat`"),
        (lambda c: c.chat(MODEL, [{"role": "user", "content": "?"}], options={"temperature": 9}), "`options.temperature`"),
        (lambda c: c.generate(MODEL, "?", suffix="x"), "`suffix`"),
        (lambda c: c.embed(MODEL, "x"), "embeddings"),
    ],
)
def test_mistakes_are_errors_of_the_client(client, call, part):
    with pytest.raises(ollama.ResponseError) as caught:
        call(client)
    assert caught.value.status_code == 400 and part in caught.value.error
