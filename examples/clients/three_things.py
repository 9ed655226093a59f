"""Three things to try with the official client: chat, a tool call, an answer in JSON.

    pip install openai
    python three_things.py [base URL]
"""

import json
import sys

from openai import OpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = OpenAI(base_url=base_url, api_key="unused")
model = "mortise-demo"


def chat():
    """A streamed conversation of two turns; reasoning arrives apart from the answer."""
    messages = []
    for question in ("What is mortise?", "What is 17 + 25?"):
        messages.append({"role": "user", "content": question})
        answer = ""
        for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
            piece = chunk.choices[0].delta.content or ""
            print(piece, end="", flush=True)
            answer += piece
        print()
        messages.append({"role": "assistant", "content": answer})


def tool_call():
    """The model asks for a tool, we call it, the model uses the result."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get the current weather for a location.",
                "parameters": {
                    "type": "object",
                    "properties": {"location": {"type": "string", "description": "City name"}},
                    "required": ["location"],
                },
            },
        }
    ]
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    asked = client.chat.completions.create(model=model, messages=messages, tools=tools)
    call = asked.choices[0].message.tool_calls[0]
    print(call.function.name, call.function.arguments)
    messages.append(asked.choices[0].message)
    result = json.dumps({"temperature": 18, "condition": "sunny"})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answered = client.chat.completions.create(model=model, messages=messages, tools=tools)
    print(answered.choices[0].message.content)


def json_schema():
    """An answer that fits a JSON Schema, because no token that would break it can be chosen."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "city": {"type": "string"},
        },
        "required": ["name", "age", "city"],
        "additionalProperties": False,
    }
    text = "Extract the person: Ada Lovelace is 36 years old and lives in London."
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": text}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": schema, "strict": True},
        },
    )
    print(answer.choices[0].message.content)


if __name__ == "__main__":
    for thing in (chat, tool_call, json_schema):
        thing()
        print()
