"""LlamaIndex's class for servers with OpenAI's dialect, and its embeddings."""

import asyncio

import openai
import pytest
from conftest import ADA, BASE_URL, EMBEDDINGS_URL, MODEL, PARIS, QUESTION, Person
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike


def model(**options):
    options = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0} | options
    return OpenAILike(model=MODEL, api_base=BASE_URL, api_key="unused", **options)


def get_weather(location: str) -> str:
    """Get the current weather for a location."""
    return '{"temperature": 18, "condition": "sunny"}'


TOOL = FunctionTool.from_defaults(get_weather)


def test_whole_and_streamed():
    messages = [ChatMessage(role="system", content="You are mortise-demo."), ChatMessage(QUESTION)]
    whole = model(temperature=0).chat(messages).message.content
    assert "mortise" in whole.lower()
    pieces = list(model(temperature=0).stream_chat(messages))
    assert "".join(piece.delta or "" for piece in pieces) == whole and len(pieces) > 3


def test_texts_are_continued():
    continued = model(is_chat_model=False, max_tokens=8, temperature=0)
    whole = continued.complete("The mortise is").text
    assert whole and [piece.text for piece in continued.stream_complete("The mortise is")][-1] == whole


def test_a_tool_is_called():
    answer = model().chat_with_tools([TOOL], user_msg=PARIS)
    (call,) = model().get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"location": "Paris"})


def test_an_agent_runs_its_tools():
    agent = FunctionAgent(tools=[TOOL], llm=model())

    async def run():
        return await agent.run(PARIS)

    assert "18" in str(asyncio.run(run()))


def test_structured_output(ada):
    assert model().as_structured_llm(Person).complete(ADA).raw == ada


def test_embeddings():
    embedding = OpenAILikeEmbedding(model_name="model", api_base=EMBEDDINGS_URL, api_key="unused")
    one, two = embedding.get_text_embedding_batch(["a cat", "a dog"])
    assert len(one) == len(two) == 384


def test_a_mistake_is_the_clients_own_exception():
    with pytest.raises(openai.BadRequestError, match="top_p"):
        model(additional_kwargs={"top_p": 7.0}).chat([ChatMessage(QUESTION)])
