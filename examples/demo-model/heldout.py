"""Held-out prompts, skill by skill, and what counts as a right answer.

A case is a dict: messages, tools, think (bool), expect (text or calls), and for
servers with grammars `request`, the fields that ask for one.
"""

import json
import re

import arith
import extract
import generate
import toolchat
import world
from words import Dice

CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.S)


def parse(text):
    """(reasoning, content, calls) of raw output; a call that does not parse is None."""
    text = text.replace("<|im_end|>", "").replace("<|endoftext|>", "")
    reasoning = ""
    if "</think>" in text:
        head, _, text = text.partition("</think>")
        reasoning = head.replace("<think>", "").strip()
    calls = []
    for body in CALL.findall(text):
        try:
            c = json.loads(body)
            calls.append((c["name"], c["arguments"]))
        except (ValueError, KeyError, TypeError):
            calls.append(None)
    content = CALL.sub("", text).strip()
    if "<tool_call>" in content:
        calls.append(None)
    return reasoning, content, calls


def case(sample, upto=None):
    """The prompt before the last assistant turn, and that turn as the expectation."""
    messages = sample["messages"]
    i = max(i for i, m in enumerate(messages) if m["role"] == "assistant") if upto is None else upto
    wanted = messages[i]
    reasoning, content, _ = parse(wanted["content"] or "")
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in wanted.get("tool_calls", [])]
    history = []
    for m in messages[:i]:
        if m["role"] == "assistant":
            m = m | {"content": parse(m["content"] or "")[1] or None}
        history.append(m)
    return {"messages": history, "tools": sample.get("tools"), "reasoning": bool(reasoning), "content": content, "calls": calls,
            "no_think": sample.get("no_think", False)}


def results(d):
    """Only the turn that reports a result."""
    s = toolchat.round_trip(d)
    i = min(i for i, m in enumerate(s["messages"]) if m["role"] == "tool") + 1
    return case(s, i)


def follow_up(d):
    messages = []
    generate.sum_turns(d, messages, d.randint(1, 2))
    return case({"messages": messages})


def names(d):
    messages = []
    name = d.first()
    messages += generate.turn(f"My name is {name}.", f"Nice to meet you, {name}.")
    for _ in range(d.randint(0, 2)):
        messages += generate.turn(*world.fact(d))
    messages += generate.turn(world.ask(d, "what is my name"), f"Your name is {name}.")
    return case({"messages": messages})


def sums(d):
    while True:
        s = generate.sums(d)
        if not s.get("no_think"):
            return case(s)


def unseen_tool(d):
    """Tools whose names and arguments come from the held-out side."""
    tool, text, arguments = toolchat.new_tool(d, 0)
    messages = toolchat.system(d) + [{"role": "user", "content": toolchat.keep_case(d, text)},
                                     toolchat.call_message([toolchat.call(tool["name"], arguments)])]
    return case({"messages": messages, "tools": toolchat.mixed(d, tool, 0.5)})


def known_tool(d):
    tool, text, arguments = toolchat.new_tool(d, 1)
    messages = toolchat.system(d) + [{"role": "user", "content": toolchat.keep_case(d, text)},
                                     toolchat.call_message([toolchat.call(tool["name"], arguments)])]
    return case({"messages": messages, "tools": toolchat.mixed(d, tool, 0.5)})


def parallel(d):
    s = toolchat.parallel(d)
    i = next(i for i, m in enumerate(s["messages"]) if m.get("tool_calls"))
    return case(s, i)


def by_schema(d):
    """Facts under the keys of a schema that only a grammar knows."""
    s = extract.forced(d)
    wanted = json.loads(s["messages"][-1]["content"])
    schema = {"type": "object", "properties": {k: type_of(v) for k, v in wanted.items()}, "required": list(wanted),
              "additionalProperties": False}
    c = case(s)
    c["schema"], c["learn"] = schema, s["learn"]
    c["request"] = {"response_format": {"type": "json_schema", "json_schema": {"name": "data", "strict": True, "schema": schema}}}
    return c


def type_of(v):
    t = extract.json_type(v)
    return {"type": t, "items": {"type": "string"}} if t == "array" else {"type": t}


def required(d):
    c = unseen_tool(d) if d.chance(0.5) else known_tool(d)
    c["request"] = {"tool_choice": "required"}
    return c


SKILLS = {
    "facts about mortise": lambda d: case(generate.facts(d)),
    "outside the world": lambda d: case(generate.outside(d)),
    "sums": sums,
    "sums that go on": follow_up,
    "remembering a name": names,
    "calls, everyday tools": known_tool,
    "calls, unseen tools": unseen_tool,
    "parallel calls": parallel,
    "tool results": results,
    "no tool needed": lambda d: case(toolchat.irrelevant(d)),
    "JSON, keys asked for": lambda d: case(extract.asked(d)),
    "JSON, usual keys": lambda d: case(extract.open_ended(d)),
}
GRAMMAR = {"values under a schema": by_schema, "tool_choice required": required}


def cases(skill, n, seed=2):
    make = (SKILLS | GRAMMAR)[skill]
    return [make(Dice(f"{seed}:{skill}:{i}", held_out=True)) for i in range(n)]


def fits(arguments, parameters):
    """Whether arguments obey the declaration: names, types, enums, nothing missing."""
    if not isinstance(arguments, dict):
        return False
    properties = parameters.get("properties", {})
    python = {"string": str, "integer": int, "boolean": bool, "array": list, "number": (int, float)}
    for k, v in arguments.items():
        p = properties.get(k)
        if p is None or not isinstance(v, python[p["type"]]) or (isinstance(v, bool) and p["type"] != "boolean"):
            return False
        if "enum" in p and v not in p["enum"]:
            return False
    return all(k in arguments for k in parameters.get("required", []))


def judge(case, reasoning, content, calls):
    """(right, addressed): the answer is exactly right; its calls are well-formed and go to the right tool."""
    if not case["calls"]:
        right = content == case["content"] and not calls and (not case["reasoning"] or bool(reasoning))
        if not right and case["content"].startswith("{") and not calls:
            try:
                right = json.loads(content) == json.loads(case["content"])
            except ValueError:
                pass
        return right, right
    right = calls == case["calls"] and not content
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in case["tools"]}
    wanted = [n for n, _ in case["calls"]]
    addressed = (None not in calls and [n for n, _ in calls] == wanted and all(fits(a, declared[n]) for n, a in calls))
    return right, addressed
