"""OpenAI's agents against a running server: tools, structured output, handoffs, streams, over both dialects."""

import asyncio

import agents
import openai
import pytest
from agents import Agent, ModelSettings, Runner, function_tool
from pydantic import BaseModel

from conftest import MODEL

PARIS = "What is the weather in Paris?"
ADA = "Extract the person: Ada Lovelace is 36 years old and lives in London."


class Person(BaseModel):
    name: str
    age: int
    city: str


@function_tool
def get_weather(location: str) -> str:
    """Get the current weather for a location.

    Args:
      location: City name
    """
    return '{"temperature": 18, "condition": "sunny"}'


@pytest.fixture(params=["chat", "responses"])
def agent(request, base_url):
    # Traces go to OpenAI.
    agents.set_tracing_disabled(True)

    def make(**options):
        client = openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)
        kind = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}
        model = kind[request.param](model=MODEL, openai_client=client)
        return Agent(name="demo", instructions="You are mortise-demo.", model=model, **options)

    return make


def run(agent, text):
    return asyncio.run(Runner.run(agent, text))


def test_an_answer(agent):
    assert "mortise" in run(agent(), "What is mortise?").final_output.lower()


def test_a_tool_is_run_and_its_result_used(agent):
    result = run(agent(tools=[get_weather]), PARIS)
    kinds = [item.type for item in result.new_items if item.type != "reasoning_item"]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert "18" in result.final_output


def test_a_stream(agent):
    async def stream():
        result = Runner.run_streamed(agent(tools=[get_weather]), PARIS)
        pieces = []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                pieces.append(event.data.delta)
        return result.final_output, pieces

    final, pieces = asyncio.run(stream())
    assert "18" in final and "".join(pieces).endswith(final) and len(pieces) > 3


def test_structured_output(agent):
    made = run(agent(output_type=Person), ADA).final_output
    assert made == Person(name="Ada Lovelace", age=36, city="London")


def test_a_conversation_goes_on(agent):
    async def turns():
        first = await Runner.run(agent(tools=[get_weather]), PARIS)
        turn = {"role": "user", "content": "What is mortise?"}
        return await Runner.run(agent(), [*first.to_input_list(), turn])

    assert asyncio.run(turns()).final_output


def test_a_mistake_is_the_clients_own_exception(agent):
    with pytest.raises(openai.BadRequestError, match="top_p"):
        run(agent(model_settings=ModelSettings(top_p=7.0)), PARIS)
