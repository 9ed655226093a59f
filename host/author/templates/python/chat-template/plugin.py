"""A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it. Rules from the
settings, {"rules": "…"}, stand before every conversation."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.chat_template import Output, Segment_Plain, Segment_Special
from wit_world.imports import settings
from wit_world.imports.types import Fault_Invalid

# What the operator wants said first, if anything.
rules: list[str] = []


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        text = json.loads(settings.get()).get("rules")
        rules.extend([text] if text is not None else [])


def turn(role: str, content: str) -> list:
    """One turn. Only the markers are special: whatever a user writes stays plain text, and never
    becomes a control token."""
    return [
        Segment_Special("<|im_start|>"),
        Segment_Plain(f"{role}\n{content}"),
        Segment_Special("<|im_end|>"),
        Segment_Plain("\n"),
    ]


class ChatTemplate(exports.ChatTemplate):
    def render(self, input):
        segments = [segment for text in rules for segment in turn("system", text)]
        for index, message in enumerate(json.loads(input.messages)):
            content = message.get("content")
            if not isinstance(content, str):
                fault = f"messages[{index}].content must be text for this template"
                raise Err(Fault_Invalid(fault))
            segments += turn(message.get("role", "user"), content)
        if input.add_generation_prompt:
            segments += [Segment_Special("<|im_start|>"), Segment_Plain("assistant\n")]
        return Output(segments=segments, stop=[], opens_reasoning=False)
