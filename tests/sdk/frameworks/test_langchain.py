"""LangChain's chat models of OpenAI and of Anthropic, and its embeddings."""

import anthropic
import openai
import pytest
from conftest import ADA, BASE_URL, EMBEDDINGS_URL, HOST, MODEL, PARIS, QUESTION, WEATHER, Person, Weather
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings


def chat(kind, **options):
    if kind == "anthropic":
        return ChatAnthropic(model=MODEL, base_url=HOST, api_key="unused", max_retries=0, **options)
    responses = {"use_responses_api": True} if kind == "responses" else {}
    return ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key="unused", max_retries=0, **responses, **options)


every = pytest.mark.parametrize("kind", ["chat", "responses", "anthropic"])


@every
def test_whole_and_streamed(kind):
    model = chat(kind, temperature=0)
    messages = [SystemMessage("You are mortise-demo."), HumanMessage(QUESTION)]
    whole = model.invoke(messages)
    assert "mortise" in whole.text.lower()
    assert whole.usage_metadata["output_tokens"] > 0
    pieces = list(model.stream(messages))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert len([piece for piece in pieces if piece.text]) > 3


@every
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_used(kind, streamed):
    model = chat(kind).bind_tools([Weather])
    messages = [HumanMessage(PARIS)]
    if streamed:
        answer = None
        for piece in model.stream(messages):
            answer = piece if answer is None else answer + piece
    else:
        answer = model.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("Weather", {"location": "Paris"})
    messages += [answer, ToolMessage(WEATHER, tool_call_id=call["id"])]
    final = model.invoke(messages)
    assert not final.tool_calls and "18" in final.text


@every
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(kind, method, ada):
    assert chat(kind).with_structured_output(Person, method=method).invoke(ADA) == ada


def test_json_mode(ada):
    model = chat("chat").with_structured_output(Person, method="json_mode", include_raw=True)
    assert model.invoke(ADA)["raw"].text.startswith("{")


def test_texts_are_continued():
    model = OpenAI(model=MODEL, base_url=BASE_URL, api_key="unused", max_tokens=8, temperature=0, max_retries=0)
    whole = model.invoke("The mortise is")
    assert whole and "".join(model.stream("The mortise is")) == whole


# Texts go as tokens by default, for which the class needs the vocabulary of OpenAI's models.
def test_embeddings():
    model = OpenAIEmbeddings(
        model="model", base_url=EMBEDDINGS_URL, api_key="unused", check_embedding_ctx_length=False
    )
    one, two = model.embed_documents(["a cat", "a dog"])
    assert len(one) == len(two) == 384
    assert model.embed_query("a cat") == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("chat", openai.BadRequestError),
        ("responses", openai.BadRequestError),
        ("anthropic", anthropic.BadRequestError),
    ],
)
def test_a_mistake_is_the_clients_own_exception(kind, error):
    with pytest.raises(error, match="top_p"):
        chat(kind, top_p=7.0).invoke(QUESTION)
