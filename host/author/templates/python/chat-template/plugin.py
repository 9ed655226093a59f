"""A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it; tools, their calls and
results as the models of Hermes and Qwen read them. Rules from the settings, {"rules": "…"}, stand before
every conversation."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.chat_template import Output, Segment_Plain, Segment_Special
from wit_world.imports import settings
from wit_world.imports.types import Fault_Invalid

# What the operator wants said first, if anything.
rules: list[str] = []

# Only markers are special: whatever a user writes stays plain text, and never becomes a control token.
plain, special = Segment_Plain, Segment_Special


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        text = json.loads(settings.get()).get("rules")
        rules.extend([text] if text is not None else [])


def dumped(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def text_of(messages: list, index: int) -> str:
    """The text of a message. One with nothing but calls has none."""
    message = messages[index]
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return ""
    if isinstance(content, list) and all(isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise Err(Fault_Invalid(f"messages[{index}].content must be text for this template"))
    return content


def system(texts: list[str], tools: list):
    """The first turn: what the operator and the caller want said first, and the tools."""
    if not texts and not tools:
        return
    yield from (special("<|im_start|>"), plain("system\n" + "\n\n".join(texts)))
    if tools:
        yield plain(
            ("\n\n" if texts else "") + "# Tools\n\nYou may call one or more functions to assist with the "
            "user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>"
            + "".join("\n" + dumped(tool) for tool in tools)
            + "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        )
        yield from (special("<tool_call></tool_call>"), plain(" XML tags:\n"), special("<tool_call>"))
        yield plain('\n{"name": <function-name>, "arguments": <args-json-object>}\n')
        yield special("</tool_call>")
    yield from (special("<|im_end|>"), plain("\n"))


def rendered(messages: list, index: int, thoughts: bool, is_open: bool):
    """One message. Results of tools that follow one another make one turn."""
    message = messages[index]
    role = message.get("role", "user")
    content = text_of(messages, index)
    if role == "tool":
        if index == 0 or messages[index - 1].get("role") != "tool":
            yield from (special("<|im_start|>"), plain("user"))
        yield from (plain("\n"), special("<tool_response>"), plain(f"\n{content}\n"))
        yield special("</tool_response>")
        if index + 1 == len(messages) or messages[index + 1].get("role") != "tool":
            yield from (special("<|im_end|>"), plain("\n"))
        return
    yield from (special("<|im_start|>"), plain(f"{role}\n"))
    reasoning = message.get("reasoning_content")
    if thoughts and isinstance(reasoning, str):
        yield from (special("<think>"), plain("\n" + reasoning.strip("\n") + "\n"))
        yield from (special("</think>"), plain("\n\n"))
    yield plain(content)
    for number, call in enumerate(message.get("tool_calls") or []):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else dumped(arguments)
        yield from (plain("\n" if number or content else ""), special("<tool_call>"))
        yield plain(f'\n{{"name": {dumped(name)}, "arguments": {text}}}\n')
        yield special("</tool_call>")
    if not is_open:
        yield from (special("<|im_end|>"), plain("\n"))


class ChatTemplate(exports.ChatTemplate):
    def render(self, input):
        messages = json.loads(input.messages)
        tools = json.loads(input.tools) if input.tools is not None else []
        led = bool(messages) and messages[0].get("role") == "system"
        texts = rules + ([text_of(messages, 0)] if led else [])
        segments = list(system([text for text in texts if text], tools))
        # What the model thought before the last question is not shown to it again.
        questions = [index for index, message in enumerate(messages) if message.get("role") == "user"]
        question = max(questions, default=-1)
        for index in range(int(led), len(messages)):
            is_open = input.continue_final_message and index + 1 == len(messages)
            segments += rendered(messages, index, index > question, is_open)
        if input.add_generation_prompt:
            segments += [special("<|im_start|>"), plain("assistant\n")]
        return Output(segments=segments, stop=[], opens_reasoning=False)
