"""litellm by way of OpenAI's dialect, Anthropic's and Ollama's."""

import json

import litellm
import pytest
from conftest import ADA, BASE_URL, EMBEDDINGS_URL, HOST, MODEL, PARIS, QUESTION, WEATHER, Person

PROVIDERS = {"openai": BASE_URL, "anthropic": HOST, "ollama_chat": HOST, "hosted_vllm": BASE_URL}
TOOL = {
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


def complete(provider, messages, **options):
    return litellm.completion(
        model=f"{provider}/{MODEL}",
        messages=messages,
        api_base=PROVIDERS[provider],
        api_key="unused",
        num_retries=0,
        **options,
    )


def user(text):
    return {"role": "user", "content": text}


every = pytest.mark.parametrize("provider", PROVIDERS)


@every
def test_whole_and_streamed(provider):
    options = {"temperature": 0, "max_tokens": 200}
    messages = [{"role": "system", "content": "You are mortise-demo."}, user(QUESTION)]
    whole = complete(provider, messages, **options)
    text = whole.choices[0].message.content
    assert "mortise" in text.lower() and whole.usage.completion_tokens > 0
    pieces = list(complete(provider, messages, stream=True, **options))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text
    assert len(pieces) > 3


@every
@pytest.mark.parametrize("streamed", [False, True])
def test_the_loop_of_tools(provider, streamed):
    messages = [user(PARIS)]
    answer = complete(provider, messages, tools=[TOOL], stream=streamed, max_tokens=200)
    if streamed:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    message = answer.choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"location": "Paris"}
    # Messages go back as they came, with litellm's own fields, such as `provider_specific_fields`.
    returned = message.model_dump()
    returned["provider_specific_fields"] = {"refusal": None, "citations": []}
    result = {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": WEATHER}
    final = complete(provider, [*messages, returned, result], tools=[TOOL], max_tokens=200)
    assert "18" in final.choices[0].message.content


@every
def test_structured_output(provider, ada):
    answer = complete(provider, [user(ADA)], response_format=Person, max_tokens=200)
    assert Person.model_validate_json(answer.choices[0].message.content) == ada


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_embeddings(provider):
    made = litellm.embedding(
        model=f"{provider}/model", input=["a cat", "a dog"], api_base=EMBEDDINGS_URL, api_key="unused"
    )
    assert [len(item["embedding"]) for item in made.data] == [384, 384]


def test_embeddings_of_ollama():
    host = EMBEDDINGS_URL.removesuffix("/v1")
    made = litellm.embedding(model="ollama/model", input=["a cat", "a dog"], api_base=host)
    assert [len(item["embedding"]) for item in made.data] == [384, 384]


def test_texts_are_continued():
    made = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}",
        prompt="The mortise is",
        max_tokens=8,
        api_base=BASE_URL,
        api_key="unused",
    )
    assert made.choices[0].text


def test_responses():
    made = litellm.responses(model=f"openai/{MODEL}", input=QUESTION, api_base=BASE_URL, api_key="unused")
    assert "mortise" in made.output_text.lower()


@every
def test_a_mistake_is_litellms_own_exception(provider):
    # Ollama's classes are the coarsest.
    kinds = (litellm.BadRequestError, litellm.APIConnectionError)
    with pytest.raises(kinds, match="top_p"):
        complete(provider, [user(QUESTION)], top_p=7.0, max_tokens=8)
