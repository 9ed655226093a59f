#!/usr/bin/env python3
"""Writes written.json: answers as models of each format write them, with what they mean.

Each format has a writer below, made from the chat template of the vendor or from what vLLM and SGLang read;
none of it comes from the Rust sources. A writer takes calls and returns the text of the answer.
Run it without arguments and commit what it writes.
"""

import json
import pathlib

ROUTE = ("maps.find_route", {"from": "A.B", "to": "C"})
ONE = ("get_weather", {"city": "Zürich"})
TWO = [("get_weather", {"city": "A", "days": 3, "hourly": True}), ("time", {})]
NESTED = ("get_weather", {
    "options": {"deep": {"a": [1, {"b": None}], "f": 1.5}, "t": "x, y: {z}"},
    "places": ["a", ["b", []], 2, False],
})
# Where nothing but the schema tells a number from a text.
STOPS = ("get_weather", {"stops": [{"n": 1, "tags": ["1", "b"]}, {"n": 2, "tags": []}], "days": 3})
# Quotes, blanks at both ends, tags, code, marks of other formats, and what JSON and Python escape.
TEXTS = ("get_weather", {"city": "\"foo\"", "units": "  if a < b && \"c\":\n\treturn [1, {'k': \\n}]\n\n é 😀 </x> ]) \n"})


def js(value):
    return json.dumps(value, ensure_ascii=False)


def call_json(name="name", arguments="arguments", **more):
    return lambda call: js({**more, name: call[0], arguments: call[1]})


def between(open, close, one=call_json(), join="\n"):
    return lambda calls: join.join(open + one(call) + close for call in calls)


def listed(open, close, one=call_json(), join=", "):
    return lambda calls: open + join.join(one(call) for call in calls) + close


def python(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python(k)}: {python(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(python, value)) + "]"
    return repr(value)


def python_call(call):
    return call[0] + "(" + ", ".join(f"{k}={python(v)}" for k, v in call[1].items()) + ")"


def raw(value):
    return value if isinstance(value, str) else js(value)


def tagged(open, close, call, key, value, gap="\n", behind=""):
    """call, key and value are templates with %s."""
    def write(calls):
        lines = [open] if open else []
        for name, arguments in calls:
            lines.append(call[0] % name)
            lines += [key % k + value % raw(v) for k, v in arguments.items()]
            lines.append(call[1] + behind)
        return gap.join(lines + ([close] if close else []))
    return write


def qwen(open, close):
    def one(call):
        body = "".join(f"<parameter={k}>\n{raw(v)}\n</parameter>\n" for k, v in call[1].items())
        return f"{open}\n<function={call[0]}>\n{body}</function>\n{close}"
    return lambda calls: "\n".join(map(one, calls))


def glm(gap):
    def one(call):
        pairs = [f"<arg_key>{k}</arg_key>{gap}<arg_value>{raw(v)}</arg_value>{gap}" for k, v in call[1].items()]
        return f"<tool_call>{call[0]}{gap}{''.join(pairs)}</tool_call>"
    return lambda calls: gap.join(map(one, calls))


def dsml(section):
    def one(call):
        pairs = [
            f"<｜DSML｜parameter name=\"{k}\" string=\"{str(isinstance(v, str)).lower()}\">{raw(v)}</｜DSML｜parameter>\n"
            for k, v in call[1].items()
        ]
        return f"<｜DSML｜invoke name=\"{call[0]}\">\n{''.join(pairs)}</｜DSML｜invoke>\n"
    return lambda calls: f"<｜DSML｜{section}>\n{''.join(map(one, calls))}</｜DSML｜{section}>"


def kimi_k3(calls):
    def kind(v):
        names = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
        return names.get(type(v), "null")

    def one(index, call):
        pairs = [
            f"<|open|>argument key=\"{k}\" type=\"{kind(v)}\"<|sep|>{raw(v)}<|close|>argument<|sep|>"
            for k, v in call[1].items()
        ]
        return f"<|open|>call tool=\"{call[0]}\" index=\"{index}\"<|sep|>{''.join(pairs)}<|close|>call<|sep|>"
    body = "".join(one(i + 1, call) for i, call in enumerate(calls))
    return f"<|open|>tools<|sep|>{body}<|close|>tools<|sep|>"


def kimi_k2(calls):
    body = "".join(
        f"<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{js(arguments)}<|tool_call_end|>"
        for i, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"


def deepseek_v3(call):
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call[0]}\n```json\n{js(call[1])}\n```<｜tool▁call▁end｜>"


def minimax_m3(calls):
    ns = "]<]minimax[>["

    def value(v):
        if isinstance(v, dict):
            return "".join(f"{ns}<{k}>{value(x)}{ns}</{k}>" for k, x in v.items())
        if isinstance(v, list):
            return "".join(f"{ns}<item>{value(x)}{ns}</item>" for x in v)
        return raw(v)
    body = "".join(f"{ns}<invoke name=\"{name}\">{value(arguments)}{ns}</invoke>\n" for name, arguments in calls)
    return f"{ns}<tool_call>\n{body}{ns}</tool_call>"


def minicpm5(calls):
    def value(v):
        text = raw(v)
        return f"<![CDATA[{text}]]>" if isinstance(v, str) and any(c in text for c in "<&\n") else text
    return "".join(
        f'<function name="{name}">' + "".join(f'<param name="{k}">{value(v)}</param>' for k, v in arguments.items())
        + "</function>" for name, arguments in calls)


def solar_open(calls):
    return "<|tool_calls|>" + "".join(
        f"<|tool_call:begin|>{i}<|tool_call:name|>{name}<|tool_call:args|>{js(arguments)}<|tool_call:end|>"
        for i, (name, arguments) in enumerate(calls))


def gemma(open, close, quote):
    def value(v):
        if isinstance(v, str):
            return quote + v + quote
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in sorted(v.items())) + "}"
        if isinstance(v, list):
            return "[" + ",".join(map(value, v)) + "]"
        return js(v)
    return lambda calls: "".join(f"{open}call:{name}{value(arguments)}{close}" for name, arguments in calls)


def harmony(calls):
    # One call ends an answer: `<|call|>` is an end of sequence.
    assert len(calls) == 1
    name, arguments = calls[0]
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{js(arguments)}<|call|>"


def command_a(calls):
    lines = [js({"tool_call_id": str(i), "tool_name": n, "parameters": a}) for i, (n, a) in enumerate(calls)]
    return "<|START_ACTION|>[\n    " + ",\n    ".join(lines) + "\n]<|END_ACTION|>"


THINK = ("<think>\n", "\n</think>\n\n")

# Writer, and where it differs from the usual: marks of reasoning, marks around an answer, what ids calls have, the
# text of a false start, a closing mark that is dropped behind what is no call (messages end with it), and
# whether there may be text before calls, several calls, and calls in reasoning.
FORMATS = {
    "hermes": dict(write=between("<tool_call>\n", "\n</tool_call>"), false="<tool_call>\nweather\n"),
    "ernie": dict(write=between("\n\n\n<tool_call>\n", "\n</tool_call>\n", join=""), answer=("<response>\n", "\n</response>\n"),
                  false="<tool_call>\nweather\n"),
    "longcat": dict(write=between("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
                    think=("<longcat_think>\n", "\n</longcat_think>\n"), false="<longcat_tool_call>{"),
    "nemotron": dict(write=listed("<TOOLCALL>[", "]</TOOLCALL>"), false="<TOOLCALL>[weather"),
    "tool-calls": dict(write=listed("<tool_calls>[", "]</tool_calls>"), false="<tool_calls>[weather"),
    "minimax-m1": dict(write=listed("<tool_calls>\n", "\n</tool_calls>", join="\n"), false="<tool_calls>\n<"),
    "internlm": dict(write=between("<|action_start|><|plugin|>\n", "<|action_end|>", call_json(arguments="parameters"), join=""),
                     false="<|action_start|><|plugin|>x"),
    "granite": dict(write=listed("<|tool_call|>[", "]"), false="<|tool_call|>none "),
    "granite-20b": dict(write=between("<function_call> ", "", join="\n"), false="<function_call> f() "),
    "phi4-mini": dict(write=listed("<|tool_call|>[", "]<|/tool_call|>"), false="<|tool_call|>[f]"),
    "functools": dict(write=listed("functools[", "]"), false="functools[f] "),
    "command-a": dict(write=command_a, think=("<|START_THINKING|>", "<|END_THINKING|>"),
                      answer=("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ids=lambda i, name: str(i),
                      false="<|START_ACTION|>[f]"),
    "command-r": dict(write=lambda calls: "Action: ```json\n[\n    " + ",\n    ".join(
        json.dumps({"tool_name": n, "parameters": a}, indent=4, ensure_ascii=False) for n, a in calls) + "\n]\n```",
        false="Action: ```json\nnone\n```\n"),
    "gigachat": dict(write=between("<|function_call|>", ""), several=False, false="<|function_call|>f "),
    "apertus": dict(write=listed("<|tools_prefix|>[", "]<|tools_suffix|>", lambda call: js({call[0]: call[1]})),
                    think=("<|inner_prefix|>", "<|inner_suffix|>"), false="<|tools_prefix|>[f]"),
    "sarashina": dict(write=listed("<|tool_calls|>[", "]", lambda call: python({"name": call[0], "arguments": call[1]})),
                      false="<|tool_calls|>[f] "),
    "inkling": dict(write=between("<|message_model|>", "<|end_message|>", lambda call: f"{call[0]}<|content_invoke_tool_json|>"
                                  + js({"name": call[0], "args": call[1]}), join=""),
                    think=("<|content_thinking|>", "<|end_message|>"),
                    answer=("<|message_model|><|content_text|>", "<|end_message|>"), inside=False,
                    lost="<|end_message|>", false="<|message_model|>f "),
    "xlam": dict(write=listed("[", "]"), before=False, inside=False),
    "llama3-json": dict(write=between("", "", call_json(arguments="parameters"), join="; "), before=False, inside=False),
    "functionary": dict(write=lambda calls: "".join(f"<function={n}>{js(a)}</function>" for n, a in calls),
                        false="<function=f>x"),
    "functionary-v3.2": dict(write=lambda calls: ">>>".join(f"{n}\n{js(a)}" for n, a in calls), answer=("all\n", ""),
                             before=False, inside=False),
    "mistral": dict(write=listed("[TOOL_CALLS][", "]"), think=("[THINK]", "[/THINK]"), false="[TOOL_CALLS][f]"),
    "mistral-args": dict(write=lambda calls: "".join(f"[TOOL_CALLS]{n}[ARGS]{js(a)}" for n, a in calls),
                         think=("[THINK]", "[/THINK]"), false="[TOOL_CALLS]f "),
    "deepseek": dict(write=lambda calls: "<｜tool▁calls▁begin｜>" + "".join(
        f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{js(a)}<｜tool▁call▁end｜>" for n, a in calls) + "<｜tool▁calls▁end｜>",
        false="<｜tool▁calls▁begin｜>f "),
    "deepseek-v3": dict(write=lambda calls: "<｜tool▁calls▁begin｜>" + "\n".join(map(deepseek_v3, calls)) + "<｜tool▁calls▁end｜>",
                        false="<｜tool▁call▁begin｜>f "),
    "deepseek-dsml": dict(write=dsml("function_calls"), false="<｜DSML｜function_calls>f "),
    "kimi-k2": dict(write=kimi_k2, ids=lambda i, name: f"functions.{name}:{i}", false="<|tool_calls_section_begin|>f "),
    "kimi-k3": dict(write=kimi_k3, lost="<|close|>tools<|sep|>", think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
                    answer=("<|open|>response<|sep|>", "<|close|>response<|sep|>"), false="<|open|>tools<|sep|>f "),
    "glm": dict(write=glm("\n"), false="<tool_call>weather "),
    "hy3": dict(write=tagged("<tool_calls:opensource>", "</tool_calls:opensource>", (
        "<tool_call:opensource>%s<tool_sep:opensource>", "</tool_call:opensource>"),
        "<arg_key:opensource>%s</arg_key:opensource>", "\n<arg_value:opensource>%s</arg_value:opensource>"),
        think=("<think:opensource>", "</think:opensource>"), false="<tool_calls:opensource>f "),
    "minicpm5": dict(write=minicpm5, false='<function name="f '),
    "solar-open": dict(write=solar_open, ids=lambda i, name: str(i), think=("<|think|>", "<|end|><|begin|>assistant"),
                       answer=("<|content|>", "<|end|>"), inside=False, false="<|tool_calls|>f ",
                       before=("<|content|>I look.<|end|><|begin|>assistant", "I look.")),
    "qwen-coder": dict(write=qwen("<tool_call>", "</tool_call>"), false="<tool_call>\n<function=rm>\n"),
    "seed-oss": dict(write=qwen("<seed:tool_call>", "</seed:tool_call>"), think=("<seed:think>", "</seed:think>"),
                     false="<seed:tool_call>\n<function=rm>\n"),
    "minimax": dict(write=tagged("<minimax:tool_call>", "</minimax:tool_call>", ('<invoke name="%s">', "</invoke>"),
                                 '<parameter name="%s">', "%s</parameter>"), false="<minimax:tool_call>f "),
    "minimax-m3": dict(write=minimax_m3, nested=STOPS, think=("<mm:think>", "</mm:think>"), false="]<]minimax[>[<tool_call>f "),
    "step3": dict(write=tagged("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", (
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="%s">', "</steptml:invoke>"),
        '<steptml:parameter name="%s">', "%s</steptml:parameter>", gap="", behind="<｜tool_call_end｜>"),
        false="<｜tool_calls_begin｜>f "),
    "atem": dict(write=tagged("<atem:function_calls>", "</atem:function_calls>", ('<atem:invoke name="%s">', "</atem:invoke>"),
                              '<atem:parameter name="%s">', "%s</atem:parameter>"),
                 think=(" to=self<|message|>", "<|eom|>"), answer=("<|start|>assistant to=user<|message|>", "<|eot|>"),
                 inside=False, false="<atem:function_calls>f "),
    "lfm2": dict(write=listed("<|tool_call_start|>[", "]<|tool_call_end|>", python_call), false="<|tool_call_start|>f "),
    "olmo3": dict(write=listed("<function_calls>", "</function_calls>", python_call, join="\n"), false="<function_calls>f "),
    "pythonic": dict(write=listed("[", "]", python_call), before=False, inside=False),
    "tool-code": dict(write=listed("```tool_code\n", "\n```", python_call, join="\n"), false="```tool_code\nf\n```\n"),
    "gemma4": dict(write=gemma("<|tool_call>", "<tool_call|>", "<|\"|>"), think=("<|channel>thought\n", "<channel|>"),
                   false="<|tool_call>f "),
    "functiongemma": dict(write=gemma("<start_function_call>", "<end_function_call>", "<escape>"), false="<start_function_call>f "),
    "harmony": dict(write=harmony, lost="<|call|>", think=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
                    answer=("<|channel|>final<|message|>", ""), several=False, inside=False,
                    before=("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant", "I look."),
                    false="<|channel|>commentary to=python<|message|>f"),
}


def scenarios(name, write, nested=NESTED, lost="", think=THINK, answer=("", ""), ids=None, false=None, before=True, several=True, inside=True):
    def case(what, text, calls=(), **more):
        written = [[n, js(a), ids(i, n) if ids else None] for i, (n, a) in enumerate(calls)]
        return {"name": f"{name}: {what}", "format": name, "text": text, **({"calls": written} if calls else {}), **more}

    said = "Es ist 4 Uhr — \"früh\" ☀: a < b, {x} [y].\nBye"
    yield case("an answer", answer[0] + said + answer[1], content=said)
    yield case("reasoning and an answer", think[0] + "Hm < 5.\n\nYes" + think[1] + answer[0] + said + answer[1],
               reasoning="Hm < 5.\n\nYes", content=said)
    yield case("one call", write([ONE]), [ONE])
    yield case("nested values", write([nested]), [nested])
    yield case("texts are kept byte for byte", write([TEXTS]), [TEXTS])
    yield case("a name with a dot", write([ROUTE]), [ROUTE])
    yield case("no arguments", write([("time", {})]), [("time", {})])
    yield case("reasoning and a call", think[0] + "Hm" + think[1] + write([ONE]), [ONE], reasoning="Hm")
    if several:
        yield case("two calls", write(TWO), TWO)
        yield case("two calls where one is allowed", write(TWO), TWO[:1], parallel=False)
    if before is True:
        yield case("text before", "I look.\n\n" + write([ONE]), [ONE], content="I look.")
    elif before:
        yield case("text before", before[0] + write([ONE]), [ONE], content=before[1])
    unknown = write([("rm", {"path": "/"})])
    yield case("an undeclared tool", unknown, content=unknown.removesuffix(lost))
    whole = write([ONE])
    cut = whole[:whole.index("Zü") + 2]
    yield case("cut off", cut, content=cut)
    if false:
        yield case("a false start and a call", false + whole, [ONE], content=false.rstrip())
    if inside:
        yield case("a call before the end of reasoning", "Let me look.\n" + whole, [ONE], reasoning="Let me look.", opens=True)
        mention = f"I could say {whole} or not."
        yield case("a call that reasoning mentions", think[0] + mention + think[1] + answer[0] + "No." + answer[1],
                   reasoning=mention, content="No.")


cases = [case for name, row in FORMATS.items() for case in scenarios(name, **row)]
path = pathlib.Path(__file__).with_name("written.json")
path.write_text("[\n" + ",\n".join(" " + js(case) for case in cases) + "\n]\n")
print(f"{len(cases)} cases of {len({case['format'] for case in cases})} formats")
