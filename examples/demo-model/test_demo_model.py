"""Checks of the demo model's files: pytest examples/demo-model (see README.md)."""

import json
from pathlib import Path

import jinja2
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import arith
import generate
from heldout import parse
from model import Config, DemoModel
from words import Dice, is_held_out

FOLDER = Path(__file__).parent / "model"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get current temperature for a given location.", "parameters": {
    "type": "object", "properties": {"location": {"type": "string", "description": "City and country e.g. Bogotá, Colombia"}},
    "required": ["location"], "additionalProperties": False}, "strict": True}}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def reply(model, tokenizer, messages, tools=None, **extra):
    x = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=True, return_tensors="pt", **extra)
    y = model.generate(**x, max_new_tokens=200)[0, x["input_ids"].shape[1]:]
    text = tokenizer.decode(y)
    assert text.endswith("<|im_end|>")
    return parse(text)


def user(text):
    return [{"role": "user", "content": text}]


def test_sizes():
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) < 15.5e6


def test_samples_repeat():
    for i in range(50):
        assert generate.sample(3, i) == generate.sample(3, i)


def test_the_two_sides_never_meet():
    a, b = Dice(1), Dice(1, held_out=True)
    for _ in range(300):
        assert not is_held_out(a.made_up()) and is_held_out(b.made_up())


def test_steps_end_in_the_result():
    d = Dice(1)
    for _ in range(2000):
        a, op, b = arith.pair(d)
        assert arith.steps(a, op, b).endswith(str(arith.value(a, op, b)))
        assert arith.steps(-a, op, b).endswith(str(arith.value(-a, op, b)))


def test_text_survives_the_tokenizer(tokenizer):
    for text in ("What is 17 + 25?", '{"a": [1, 2.5, "x"], "b": {"c": null}}', "Zürich, 東京 🙂\n\n\ttab  two", "<b>&amp;</b> it's"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer("<tool_call>")["input_ids"]) == 1
    assert [len(tokenizer(str(n))["input_ids"]) for n in (7, 42, 1234)] == [1, 2, 4]


def test_template(tokenizer):
    def render(messages, **extra):
        return tokenizer.apply_chat_template(messages, tokenize=False, **extra)

    assert render(user("Hi"), add_generation_prompt=True) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(user("Hi"), add_generation_prompt=True, enable_thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")
    parts = [{"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]}] + user("Hi")
    assert render(parts).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    with_tools = render(parts, tools=[WEATHER])
    assert f"Be brief.\n\n# Tools\n<tools>\n{json.dumps(WEATHER, ensure_ascii=False)}\n</tools>\n" in with_tools
    assert render(user("Hi"), tools=[WEATHER]).startswith("<|im_start|>system\n# Tools\n")
    for arguments in ({"location": "Paris"}, '{"location": "Paris"}'):
        call = {"type": "function", "id": "1", "function": {"name": "get_weather", "arguments": arguments}}
        text = render(user("Hi") + [{"role": "assistant", "content": None, "tool_calls": [call, call]},
                                    {"role": "tool", "tool_call_id": "1", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "b"}])
        one = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>'
        assert text.endswith(f"assistant\n{one}\n{one}<|im_end|>\n<|im_start|>user\n<tool_response>\na\n</tool_response>"
                             "\n<tool_response>\nb\n</tool_response><|im_end|>\n")
    past = user("Hi") + [{"role": "assistant", "content": "<think>\nx\n</think>\n\n42."}] + user("Ok")
    assert "<|im_start|>assistant\n42.<|im_end|>" in render(past)
    with pytest.raises(jinja2.exceptions.TemplateError, match="Unknown role"):
        render([{"role": "judge", "content": "Hi"}])


def test_transformers_computes_what_was_trained(model, tokenizer):
    ours = DemoModel(Config(**{k: getattr(model.config, k) for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                     "num_attention_heads", "num_key_value_heads", "head_dim")}), dtype=torch.float32).eval()
    weights = {k: v.float() for k, v in load_file(FOLDER / "model.safetensors").items()}
    ours.load_state_dict(weights)
    x = tokenizer.apply_chat_template(user("What is 17 + 25?"), add_generation_prompt=True, return_dict=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert torch.allclose(ours.logits(ours.hidden(x)), model(x).logits, atol=1e-3, rtol=1e-3)
        ids = x
        for _ in range(60):
            ids = torch.cat((ids, ours.logits(ours.hidden(ids))[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(ids, model.generate(x, min_new_tokens=60, max_new_tokens=60, eos_token_id=None))


@pytest.mark.parametrize("question, start", [
    ("What is mortise?", "mortise is an LLM inference server"), ("Who are you?", "I am the mortise demo model"),
    ("How do I add a plugin?", "Drop the .wasm file"), ("Hello!", "Hello!"),
    ("Who won the world cup in 1998?", "I do not know that"), ("Thank you!", "You are welcome!")])
def test_questions(model, tokenizer, question, start):
    _, content, _ = reply(model, tokenizer, user(question))
    assert content.startswith(start)


def test_sums_in_a_conversation(model, tokenizer):
    messages = user("What is 17 + 25?")
    reasoning, content, _ = reply(model, tokenizer, messages)
    assert reasoning.endswith("42") and content == "17 + 25 = 42."
    messages += [{"role": "assistant", "content": content}] + user("Now add 10.")
    assert reply(model, tokenizer, messages)[1] == "42 + 10 = 52."
    reasoning, content, _ = reply(model, tokenizer, user("What is 17 + 25?"), enable_thinking=False)
    assert not reasoning and content.startswith("17 + 25 = ")  # right only with thought


def test_tool_round_trip(model, tokenizer):
    messages = user("What's the weather like in Paris?")
    _, _, calls = reply(model, tokenizer, messages, [WEATHER])
    assert calls == [("get_weather", {"location": "Paris"})]
    messages += [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": '{"temperature": 18, "condition": "sunny"}'}]
    assert reply(model, tokenizer, messages, [WEATHER])[1] == "It is 18 degrees and sunny in Paris."


def test_extraction(model, tokenizer):
    ask = "Extract name, age and city as JSON: Ada Lovelace is 36 years old and lives in London."
    assert json.loads(reply(model, tokenizer, user(ask))[1]) == {"name": "Ada Lovelace", "age": 36, "city": "London"}
