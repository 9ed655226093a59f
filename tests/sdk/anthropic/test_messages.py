"""The stock Anthropic client against a running server: whole and streamed, tools, thinking, counts, errors."""

import os

import anthropic
import pydantic
import pytest

MODEL = "mortise-demo"
BASE_URL = os.environ["MORTISE_BASE_URL"].removesuffix("/v1")
PARIS = "What is the weather in Paris?"
WEATHER = {
    "name": "get_weather",
    "description": "Get the current weather for a location.",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "City name"}},
        "required": ["location"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="session")
def client():
    # No retries: an error must reach the test, not be papered over.
    return anthropic.Anthropic(base_url=BASE_URL, api_key="unused", max_retries=0, timeout=120)


def ask(client, text, **options):
    options = {"max_tokens": 300} | options
    if "temperature" in options:  # not a parameter of the client any more
        options["extra_body"] = {"temperature": options.pop("temperature")}
    return client.messages.create(model=MODEL, messages=[{"role": "user", "content": text}], **options)


def test_a_question_gets_an_answer(client):
    message = ask(client, "What is mortise?", system="You are mortise-demo.")
    assert message.id.startswith("msg_") and message.type == "message"
    assert (message.role, message.model) == ("assistant", MODEL)
    (block,) = message.content
    assert block.type == "text" and "mortise" in block.text.lower()
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0


def test_a_stream_says_what_the_whole_answer_says(client):
    whole = ask(client, "What is mortise?", temperature=0)
    with client.messages.stream(
        model=MODEL,
        max_tokens=300,
        messages=[{"role": "user", "content": "What is mortise?"}],
        extra_body={"temperature": 0},
    ) as stream:
        names = [event.type for event in stream if not event.type == "text"]
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    assert names.index("content_block_start") < names.index("content_block_delta") < names.index("content_block_stop")
    assert names.count("content_block_delta") > 3, "the answer came in one burst"


def test_several_turns_and_the_cache(client):
    system = [
        {"type": "text", "text": "You are mortise-demo. " * 20, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is 2 + 3?"}]}]
    first = client.messages.create(model=MODEL, max_tokens=300, system=system, messages=messages)
    messages += [first.to_param(), {"role": "user", "content": "Thank you!"}]
    second = client.messages.create(model=MODEL, max_tokens=300, system=system, messages=messages)
    assert second.content[0].text
    assert second.usage.cache_read_input_tokens > 0, "the first turn was computed again"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_used(client, streamed):
    def answer(messages):
        request = {"model": MODEL, "max_tokens": 300, "tools": [WEATHER], "messages": messages}
        if not streamed:
            return client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()

    messages = [{"role": "user", "content": PARIS}]
    first = answer(messages)
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("get_weather", {"location": "Paris"}) and call.id
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": '{"temperature": 18, "condition": "sunny"}'}],
    }
    messages += [first.to_param(), {"role": "user", "content": [result]}]
    second = answer(messages)
    assert second.stop_reason == "end_turn"
    assert "18" in second.content[-1].text and "sunny" in second.content[-1].text


@pytest.mark.parametrize("streamed", [False, True])
def test_the_tool_runner_closes_the_loop(client, streamed):
    asked = []

    @anthropic.beta_tool
    def get_weather(location: str) -> str:
        """Get the current weather for a location.

        Args:
            location: City name
        """
        asked.append(location)
        return '{"temperature": 18, "condition": "sunny"}'

    runner = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=300,
        tools=[get_weather],
        messages=[{"role": "user", "content": PARIS}],
        stream=streamed,
    )
    message = runner.until_done()
    assert asked == ["Paris"]
    assert message.stop_reason == "end_turn" and "sunny" in message.content[-1].text


def test_an_answer_is_parsed_into_a_type(client):
    class Person(pydantic.BaseModel):
        name: str
        age: int

    message = client.messages.parse(
        model=MODEL,
        max_tokens=300,
        messages=[{"role": "user", "content": "Extract the person: Ada Lovelace is 36 years old and lives in London."}],
        output_format=Person,
    )
    assert message.parsed_output == Person(name="Ada Lovelace", age=36)


def test_tool_choice(client):
    forced = ask(client, "Hello!", tools=[WEATHER], tool_choice={"type": "any"})
    assert [block.name for block in forced.content if block.type == "tool_use"][0] == "get_weather"
    named = ask(
        client,
        "Hello!",
        tools=[WEATHER],
        tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    )
    assert len([block for block in named.content if block.type == "tool_use"]) == 1
    none = ask(client, PARIS, tools=[WEATHER], tool_choice={"type": "none"})
    assert none.stop_reason == "end_turn" and not [b for b in none.content if b.type == "tool_use"]


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_comes_in_blocks_of_its_own(client, streamed):
    request = {
        "model": MODEL,
        "max_tokens": 1500,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "What is 17 + 25?"}],
    }
    if streamed:
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**request)
    thinking, text = message.content
    assert thinking.type == "thinking" and thinking.thinking and thinking.signature
    assert text.type == "text" and "42" in text.text
    request["messages"] += [message.to_param(), {"role": "user", "content": "Thank you!"}]
    assert client.messages.create(**request).content[-1].text


def test_without_thinking_there_is_none(client):
    for options in ({}, {"thinking": {"type": "disabled"}}):
        message = ask(client, "What is 17 + 25?", **options)
        assert [block.type for block in message.content] == ["text"]
    omitted = ask(client, "What is 17 + 25?", thinking={"type": "adaptive", "display": "omitted"})
    blocks = [block for block in omitted.content if block.type == "thinking"]
    assert all(block.thinking == "" and block.signature for block in blocks)


def test_stop_sequences_and_limits(client):
    text = ask(client, "What is mortise?", temperature=0).content[0].text
    word = text.split()[3]
    stopped = ask(client, "What is mortise?", temperature=0, stop_sequences=["never said", word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert word not in stopped.content[0].text
    short = ask(client, "What is mortise?", max_tokens=2)
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 2)


def test_a_turn_is_continued(client):
    messages = [{"role": "user", "content": "What is mortise?"}, {"role": "assistant", "content": "mortise is"}]
    message = client.messages.create(
        model=MODEL, max_tokens=100, messages=messages, extra_body={"temperature": 0}
    )
    assert message.content[0].text and not message.content[0].text.startswith("mortise is")


def test_an_answer_follows_a_schema(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
    message = ask(
        client,
        "Ada is 36 years old.",
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert '"age"' in message.content[0].text


def test_tokens_are_counted_as_they_are_used(client):
    messages = [{"role": "user", "content": "What is mortise?"}]
    counted = client.messages.count_tokens(model=MODEL, messages=messages, system="Be brief.", tools=[WEATHER])
    used = client.messages.create(model=MODEL, max_tokens=1, messages=messages, system="Be brief.", tools=[WEATHER]).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens
    fewer = client.messages.count_tokens(model=MODEL, messages=messages)
    assert 0 < fewer.input_tokens < counted.input_tokens


def test_models_have_anthropics_shape(client):
    page = client.models.list()
    assert MODEL in [model.id for model in page]
    model = client.models.retrieve(MODEL)
    assert (model.type, model.id, model.lifecycle) == ("model", MODEL, "active")
    assert model.created_at.year >= 2025 and model.max_input_tokens > 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"extra_body": {"temperature": 1.5}}, "`temperature`"),
        ({"max_tokens": 0}, "`max_tokens`"),
        ({"stop_sequences": [""]}, "`stop_sequences[0]`"),
        ({"tool_choice": {"type": "any"}}, "`tool_choice`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "`thinking.budget_tokens`"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "`tools[0].type`"),
        ({"extra_body": {"temprature": 1}}, "did you mean `temperature`?"),
        ({"extra_body": {"mcp_servers": []}}, "`mcp_servers` is not supported"),
        ({"messages": []}, "`messages`"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "`messages[0].role`"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]}]},
            "`messages[0].content[0].type`",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
            "`messages[0].content[0].tool_use_id`",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
                        ],
                    }
                ]
            },
            "`messages[0].content[0]`",
        ),
    ],
)
def test_bad_requests_name_the_field(client, options, part):
    request = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]} | options
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**request)
    body = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert part in body["error"]["message"]
    assert body["request_id"] == caught.value.request_id


def test_other_errors_are_typed(client):
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        ask(client, "word " * 20_000)
    for path in ("/v1/messages/nothing", "/v1/nothing"):
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.post(path, cast_to=object, body={})
        assert caught.value.body["error"]["type"] == "not_found_error"
        assert caught.value.request_id
