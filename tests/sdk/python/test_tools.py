"""Tool calls: chosen, forced, forbidden, streamed, and their results used."""

import json

from conftest import MODEL

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "description": "City name"}},
            "required": ["location"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Get the current time in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
PARIS = "What is the weather in Paris?"


def test_the_round_trip(client):
    messages = [{"role": "user", "content": PARIS}]
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER, TIME])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"location": "Paris"}

    messages.append(choice.message.to_dict())
    result = json.dumps({"temperature": 18, "condition": "sunny"})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER, TIME])
    answer = second.choices[0]
    assert answer.finish_reason == "stop"
    assert "18" in answer.message.content and "sunny" in answer.message.content


def test_streamed_fragments_make_the_same_call(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PARIS}],
        tools=[WEATHER],
        stream=True,
    )
    name, call_id, arguments, finish = None, None, [], None
    for chunk in stream:
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            name = name or call.function.name
            call_id = call_id or call.id
            if call.function.arguments:
                arguments.append(call.function.arguments)
    assert (name, finish) == ("get_weather", "tool_calls") and call_id
    assert json.loads("".join(arguments)) == {"location": "Paris"}


def test_required_always_calls(ask):
    # Nothing in this asks for a tool; the grammar does.
    choice = ask("Hello!", tools=[WEATHER], tool_choice="required", max_tokens=200).choices[0]
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        assert call.function.name == "get_weather"
        assert list(json.loads(call.function.arguments)) == ["location"]


def test_a_named_tool_is_the_one_called(ask):
    named = {"type": "function", "function": {"name": "get_time"}}
    choice = ask(PARIS, tools=[WEATHER, TIME], tool_choice=named, max_tokens=200).choices[0]
    assert {call.function.name for call in choice.message.tool_calls} == {"get_time"}


def test_none_never_calls(ask):
    message = ask(PARIS, tools=[WEATHER], tool_choice="none").choices[0].message
    assert not message.tool_calls


def test_a_question_that_needs_no_tool_is_answered(ask):
    choice = ask("What is mortise?", tools=[WEATHER]).choices[0]
    assert choice.finish_reason == "stop" and not choice.message.tool_calls
