"""Answers in a given form. The grammar guarantees the form; the model fills it in."""

import json

import openai
from pydantic import BaseModel, Field

ADA = "Extract the person: Ada Lovelace is 36 years old and lives in London."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "city": {"type": "string"},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}


def schema(document, name="answer"):
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": document, "strict": True},
    }


def test_a_schema_is_met_and_filled_in(ask):
    content = ask(ADA, response_format=schema(PERSON)).choices[0].message.content
    assert json.loads(content) == {"name": "Ada Lovelace", "age": 36, "city": "London"}


def test_the_sdk_parses_into_a_type(client):
    class Person(BaseModel):
        name: str
        age: int
        city: str

    completion = client.chat.completions.parse(
        model="mortise-demo",
        messages=[{"role": "user", "content": ADA}],
        response_format=Person,
    )
    assert completion.choices[0].message.parsed == Person(
        name="Ada Lovelace", age=36, city="London"
    )


def test_a_stream_is_parsed_into_a_type(client):
    class Person(BaseModel):
        name: str
        age: int
        city: str

    with client.chat.completions.stream(
        model="mortise-demo",
        messages=[{"role": "user", "content": ADA}],
        response_format=Person,
    ) as stream:
        partial = [event.parsed for event in stream if event.type == "content.delta"]
        completion = stream.get_final_completion()
    assert completion.choices[0].message.parsed == Person(name="Ada Lovelace", age=36, city="London")
    assert len(partial) > 3 and partial[-1] == {"name": "Ada Lovelace", "age": 36, "city": "London"}


def test_the_arguments_of_a_tool_are_parsed_into_a_type(client):
    class Weather(BaseModel):
        """Get the current weather for a location."""

        location: str = Field(description="City name")

    request = {
        "model": "mortise-demo",
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [openai.pydantic_function_tool(Weather, name="get_weather")],
    }
    completion = client.chat.completions.parse(**request)
    (call,) = completion.choices[0].message.tool_calls
    assert call.function.parsed_arguments == Weather(location="Paris")
    with client.chat.completions.stream(**request) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [Weather(location="Paris")]


def test_json_object_is_an_object(ask):
    content = ask(ADA, response_format={"type": "json_object"}).choices[0].message.content
    assert isinstance(json.loads(content), dict)


def test_a_schema_binds_whatever_is_asked(ask):
    colours = {"type": "string", "enum": ["red", "green", "blue"]}
    document = {
        "type": "object",
        "properties": {"colour": colours, "flag": {"type": "boolean"}},
        "required": ["colour", "flag"],
        "additionalProperties": False,
    }
    for seed in range(5):
        content = ask(
            "What is mortise?", response_format=schema(document), temperature=1.5, seed=seed
        ).choices[0].message.content
        value = json.loads(content)
        assert value["colour"] in ["red", "green", "blue"] and isinstance(value["flag"], bool)
