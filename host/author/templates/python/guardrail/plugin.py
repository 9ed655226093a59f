"""A guardrail: it refuses what asks for a word of a list, and ends or mends answers that say one. Settings:
{"words": ["swordfish"], "replace_with": "***"}. The session is in guardrail.py."""

import json

import guardrail
from wit_world import exports
from wit_world.exports.guardrail import Traits, Verdict_Pass
from wit_world.imports import settings


def text_of(messages) -> str:
    """Texts of a conversation, or the prompt."""
    if isinstance(messages, str):
        return messages
    held = messages if isinstance(messages, list) else []
    contents = [message.get("content") for message in held if isinstance(message, dict)]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [{"text": content}])]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        guardrail.rules.update(json.loads(settings.get()))


class Guardrail(exports.Guardrail):
    def describe(self):
        return Traits(input=True, content=True, reasoning=False, call_arguments=False)

    def check_input(self, context, messages):
        if guardrail.find(text_of(json.loads(messages))):
            return guardrail.refuse("the conversation has a word that may not be used")
        return Verdict_Pass()

    def open(self, context):
        # Only what waits for the verdict can be mended.
        return guardrail.Session(context.holds and guardrail.rules["replace_with"] is not None)
