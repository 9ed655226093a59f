"""Frameworks against running servers, told nothing but their addresses: `MORTISE_BASE_URL` has the demo model,
`MORTISE_EMBEDDINGS_URL` a model that makes embeddings."""

import os

# Without these litellm fetches a list of prices, and others look for their own services.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LANGSMITH_TRACING"] = "false"

import pytest
from pydantic import BaseModel, Field

MODEL = "mortise-demo"
BASE_URL = os.environ["MORTISE_BASE_URL"]
HOST = BASE_URL.removesuffix("/v1")
EMBEDDINGS_URL = os.environ["MORTISE_EMBEDDINGS_URL"]

QUESTION = "What is mortise?"
PARIS = "What is the weather in Paris?"
ADA = "Extract the person: Ada Lovelace is 36 years old and lives in London."
WEATHER = '{"temperature": 18, "condition": "sunny"}'


class Person(BaseModel):
    """A person and where they live."""

    name: str
    age: int
    city: str


class Weather(BaseModel):
    """Get the current weather for a location."""

    location: str = Field(description="City name")


@pytest.fixture
def ada():
    return Person(name="Ada Lovelace", age=36, city="London")
