"""The Responses API through the stock client: whole, streamed, parsed, continued, conversations."""

import openai
import pytest
from pydantic import BaseModel

from conftest import MODEL

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "City name"}},
        "required": ["location"],
        "additionalProperties": False,
    },
    "strict": True,
}


def test_a_question_gets_a_response(client):
    response = client.responses.create(model=MODEL, input="What is mortise?")
    assert response.status == "completed"
    assert "mortise" in response.output_text.lower()
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_reasoning_is_an_item_of_its_own(client):
    response = client.responses.create(model=MODEL, input="What is 17 + 25?")
    reasoning, message = response.output
    assert reasoning.type == "reasoning" and reasoning.content[0].text
    assert message.type == "message" and "42" in message.content[0].text


def test_a_stream_says_what_the_whole_response_says(client):
    options = {"model": MODEL, "input": "What is mortise?", "temperature": 0.8, "extra_body": {"seed": 7}}
    whole = client.responses.create(**options)
    events = list(client.responses.create(**options, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text
    assert len(pieces) > 3, "the response came in one burst"
    assert events[0].type == "response.created" and events[-1].type == "response.completed"


def test_the_stream_helper_gathers_the_response(client):
    with client.responses.stream(model=MODEL, input="What is mortise?") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.output_text.delta", "response.output_text.done"} <= kinds
    assert "mortise" in final.output_text.lower()


def test_a_function_is_called_and_its_output_answered(client):
    first = client.responses.create(
        model=MODEL, input="What is the weather in Paris?", tools=[WEATHER], tool_choice="required"
    )
    call = next(item for item in first.output if item.type == "function_call")
    assert call.name == "get_weather" and "Paris" in call.arguments
    second = client.responses.create(
        model=MODEL,
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees, sunny"}],
        tools=[WEATHER],
    )
    assert second.output_text


class Person(BaseModel):
    name: str
    age: int


def test_parse_gives_an_object_of_the_callers_type(client):
    response = client.responses.parse(model=MODEL, input="Ada Lovelace is 36.", text_format=Person)
    assert isinstance(response.output_parsed, Person)


def test_a_response_is_kept_until_it_is_deleted(client):
    response = client.responses.create(model=MODEL, input="Hello", metadata={"a": "b"})
    assert client.responses.retrieve(response.id).output_text == response.output_text
    items = client.responses.input_items.list(response.id)
    assert items.data[0].content[0].text == "Hello"
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_background_response_is_fetched_later(client):
    response = client.responses.create(model=MODEL, input="Hello", background=True)
    assert response.status == "queued"
    events = list(client.responses.retrieve(response.id, stream=True))
    assert events[-1].type == "response.completed"
    assert client.responses.retrieve(response.id).status in ("in_progress", "completed")


def test_a_conversation_gathers_its_items(client):
    conversation = client.conversations.create(metadata={"topic": "demo"})
    client.responses.create(model=MODEL, input="Hello", conversation=conversation.id)
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.role for item in items if item.type == "message"] == ["user", "assistant"]
    changed = client.conversations.update(conversation.id, metadata={"topic": "other"})
    assert changed.metadata == {"topic": "other"}
    assert client.conversations.delete(conversation.id).deleted


def test_completions_are_stored_on_request(client, ask):
    completion = ask("Hello", store=True, metadata={"kind": "sdk"})
    listed = client.chat.completions.list(metadata={"kind": "sdk"})
    assert [stored.id for stored in listed] == [completion.id]
    assert client.chat.completions.retrieve(completion.id).choices[0].message.content
    messages = client.chat.completions.messages.list(completion.id)
    assert messages.data[0].content == "Hello"
    client.chat.completions.update(completion.id, metadata={"kind": "changed"})
    assert client.chat.completions.delete(completion.id).deleted


def test_mistakes_are_the_clients_exceptions(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input=[{"role": "robot", "content": "x"}])
    assert refused.value.param == "input[0].role"
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(model=MODEL, input="Hello", previous_response_id="resp_none")
    assert missing.value.code == "previous_response_not_found"


def test_the_tokens_of_an_input_are_those_that_its_response_is_charged(client):
    asked = dict(model=MODEL, input="What is mortise?", instructions="Be brief.")
    counted = client.responses.input_tokens.count(**asked)
    assert counted.object == "response.input_tokens"
    first = client.responses.create(**asked)
    assert counted.input_tokens == first.usage.input_tokens
    more = dict(model=MODEL, input="And why?", previous_response_id=first.id)
    counted = client.responses.input_tokens.count(**more)
    assert counted.input_tokens == client.responses.create(**more).usage.input_tokens


def test_a_compacted_conversation_goes_on(client):
    said = [
        {"role": "user", "content": "What is mortise?"},
        {"role": "assistant", "content": "A server for language models."},
    ]
    compacted = client.responses.compact(model=MODEL, input=said)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    items = [item.model_dump(exclude_none=True) for item in compacted.output]
    items.append({"role": "user", "content": "Go on."})
    response = client.responses.create(model=MODEL, input=items)
    assert response.status == "completed"
