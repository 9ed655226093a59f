"""A tool: it counts what a text has, since language models are bad at counting. The model calls
`count_text` with a text; the settings may bound the text: {"max_bytes": 1000}."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.tool import Declaration, Failure_Refused
from wit_world.imports import settings

PARAMETERS = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The text to count."}},
    "required": ["text"],
    "additionalProperties": False,
}

# The longest text that is counted.
limits = {"max_bytes": 100_000}


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        limits.update(json.loads(settings.get()))


class Tool(exports.Tool):
    def describe(self):
        description = "Counts the characters, words and lines of a text."
        return [Declaration("count_text", description, json.dumps(PARAMETERS))]

    def call(self, name, arguments, context):
        # The host has checked that the arguments follow the schema.
        text = json.loads(arguments)["text"]
        if len(text.encode()) > limits["max_bytes"]:
            # The model reads this, and may try again with less.
            raise Err(Failure_Refused(f"the text has more than {limits['max_bytes']} bytes"))
        counts = {
            "characters": len(text),
            "words": len(text.split()),
            "lines": len(text.splitlines()),
        }
        return json.dumps(counts, separators=(",", ":"))
