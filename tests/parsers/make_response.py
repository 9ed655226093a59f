"""Answers as `transformers` takes them apart by a response template.

    pip install transformers==5.23.0    # no torch is needed
    python make_response.py > response.json

The templates are written for this test, after the formats of models of some families.
"""

import json

from transformers.utils.chat_parsing import parse_response

CALL = {"type": "function", "function": "{content}"}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINK = {"open": "<think>", "close": "</think>"}
ASSISTANT = "<|im_start|>assistant\n"

TEMPLATES = {
    "chatml": {
        "defaults": {"role": "assistant"},
        "start_anchor": ASSISTANT,
        "fields": {
            "reasoning_content": THINK,
            "tool_calls": {
                "open_pattern": r"\s*<tool_call>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": CALL,
            },
            "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)", "content": "text"},
        },
    },
    "tags": {
        "version": 1,
        "start_anchor": ASSISTANT,
        "fields": {
            "thinking": THINK,
            "tool_calls": {
                "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
                "close_pattern": r"</function>\s*</tool_call>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>"},
                "transform": NAMED,
            },
            "content": {"close": "<|im_end|>"},
        },
    },
    "actions": {
        "start_anchor": "<|CHATBOT|>",
        "fields": {
            "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
            "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
            "tool_calls": {
                "open": "<|START_ACTION|>",
                "close": "<|END_ACTION|>",
                "content": "json",
                "transform_each": True,
                "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            },
        },
    },
    "channels": {
        "start_anchor": "<|start|>assistant",
        "fields": {
            "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
            "content": {"open": "<|channel|>final<|message|>", "close": ["<|end|>", "<|return|>"]},
            "tool_calls": {
                "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>[\w.]+).*?<\|message\|>",
                "close": "<|call|>",
                "repeats": True,
                "content": "json",
                "transform": NAMED,
            },
        },
    },
    "turns": {
        "start_anchor": ["<|turn>model\n", "<tool_response|>"],
        "fields": {
            "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"},
            "tool_calls": {
                "open_pattern": r"<\|tool_call>call:(?P<name>[\w.]+)",
                "close": "<tool_call|>",
                "repeats": True,
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
                "transform": NAMED,
            },
            "content": {"close": ["<turn|>", "<eos>"]},
        },
    },
    "messages": {
        "start_anchor_pattern": r"<\|message_model\|>",
        "fields": {
            "thinking": {
                "open_pattern": r"(?:<\|message_model\|>)?[^<]*<\|content_thinking\|>",
                "close": "<|end_message|>",
                "repeats": True,
                "join": "",
                "content_args": {"strip": False},
            },
            "content": {
                "open_pattern": r"(?:<\|message_model\|>)?[^<]*<\|content_text\|>",
                "close": "<|end_message|>",
                "repeats": True,
                "join": " / ",
                "content_args": {"strip": False},
            },
            "tool_calls": {
                "open_pattern": r"(?:<\|message_model\|>)?[^<]*<\|content_invoke_tool_json\|>",
                "close": "<|end_message|>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.args}"}},
            },
        },
    },
    "lines": {
        "start_anchor": "Assistant:",
        "fields": {
            "thinking": {"open_pattern": r"(?:^|<think>\s*)", "close": "</think>"},
            "content": {"open": "<response>\n", "close_pattern": r"\n?</response>"},
            "tool_calls": {
                "open_pattern": r"<call (?P<name>[\w.]+)>",
                "close": "</call>",
                "repeats": True,
                "content": "kv-lines",
                "content_args": {
                    "kv_sep": "=",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": NAMED,
            },
        },
    },
}

# Template, name, whether the prompt opened a block of reasoning, text.
CASES = [
    ("chatml", "words", False, "Hello, world.<|im_end|>"),
    ("chatml", "words with line breaks", False, "One.\n\n  Two.\n<|im_end|>\n<|endoftext|>"),
    ("chatml", "reasoning", False, "<think>\nHm, so.\n</think>\n\nHello."),
    ("chatml", "reasoning that the prompt opened", True, "Hm, so.\n</think>\n\nHello."),
    ("chatml", "reasoning that does not end", True, "Hm, so"),
    ("chatml", "a call", False, '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call><|im_end|>'),
    ("chatml", "reasoning, words and a call", False,
     '<think>\nHm.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}\n'
     "</tool_call><|im_end|>"),
    ("chatml", "two calls", False,
     '<tool_call>{"name": "get_weather", "arguments": {"city": "a \\"b\\" {c}"}}</tool_call>\n'
     '<tool_call>\n{"name": "maps.find_route", "arguments": {"from": "x", "to": "</tool"}}\n</tool_call>'),
    ("chatml", "a call that is nested", False,
     '<tool_call>{"name": "get_weather", "arguments": {"options": {"deep": [1, {"er": null}]}, "places": ["ü", 2]}}</tool_call>'),
    ("chatml", "a number as a text", False,
     '<tool_call>{"name": "get_weather", "arguments": {"city": "5", "days": "5", "hourly": "true"}}</tool_call>'),
    ("chatml", "a mark that does not go on", False, "a <tool_cal <tool_ call> < <|im_en"),
    ("chatml", "a call without an end", False, '<tool_call>{"name": "time", "arguments": {}}'),
    ("chatml", "no JSON", False, "<tool_call>{broken</tool_call>"),
    ("chatml", "a call that is cut off", False, 'Hm. <tool_call>{"name": "time", "argum'),
    ("tags", "a call", False,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn\n</parameter>\n<parameter=days>\n4\n</parameter>\n</function>\n</tool_call>"),
    ("tags", "values that are texts", False,
     '<tool_call>\n<function=get_weather>\n<parameter=city>\n "a" \n\n</parameter>\n</function>\n</tool_call>'),
    ("tags", "lists and objects", False,
     '<tool_call>\n<function=get_weather>\n<parameter=places>\n["a", 1]\n</parameter>\n<parameter=options>\n{"k": [true]}\n'
     "</parameter>\n<parameter=hourly>\ntrue\n</parameter>\n</function>\n</tool_call>"),
    ("tags", "reasoning, words and two calls", True,
     "Hm.</think>\n\nSo:\n\n<tool_call>\n<function=time>\n</function>\n</tool_call>\n<tool_call>\n<function=maps.find_route>\n"
     "<parameter=from>\nA\n</parameter>\n<parameter=to>\nB\nC\n</parameter>\n</function>\n</tool_call><|im_end|>"),
    ("tags", "words alone", False, "1 < 2 and <function=x> is <tool_call> nothing <"),
    ("actions", "an answer", False, "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hello.<|END_RESPONSE|>"),
    ("actions", "a list of calls", False,
     '<|START_THINKING|> I should. <|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", '
     '"parameters": {"city": "Ulm"}},\n {"tool_call_id": "1", "tool_name": "time", "parameters": {}}\n]<|END_ACTION|>'),
    ("actions", "an answer that does not end", False, "<|START_RESPONSE|>Hello, \nwor"),
    ("channels", "analysis and final", False,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"),
    ("channels", "a call", False,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     '<|constrain|>json<|message|>{"city": "Rom", "days": 2}<|call|>'),
    ("channels", "a name with a dot", False,
     '<|channel|>commentary to=functions.maps.find_route<|message|>{"from":"a","to":"b"}<|call|>'),
    ("turns", "words", False, "Hello.<turn|>"),
    ("turns", "a thought and words", False, "<|channel>thought\nHm.\n<channel|>Hello.<turn|>"),
    ("turns", "a call", False,
     '<|tool_call>call:get_weather{city:<|"|>Paris, "F" {x}<|"|>,days:3,hourly:true,options:{k:[<|"|>a<|"|>,1]}}<tool_call|>'),
    ("turns", "two calls", False,
     '<|tool_call>call:time{}<tool_call|><|tool_call>call:maps.find_route{from:<|"|>a\nb<|"|>,to:<|"|>c<|"|>}<tool_call|>'),
    ("messages", "thought and text", False,
     "<|content_thinking|> Hm. <|end_message|><|message_model|><|content_text|> Hello. <|end_message|>"),
    ("messages", "two texts", False,
     "<|content_text|>One.<|end_message|><|message_model|><|content_text|>Two.<|end_message|>"),
    ("messages", "a call", False,
     '<|message_model|>time<|content_invoke_tool_json|>{"name": "time", "args": {}}<|end_message|>'),
    ("lines", "thought and response", False, "Hm, so.\n</think>\n\n<response>\nHello.\n</response>\n"),
    ("lines", "a call", False, "Hm.</think>\n<call get_weather>\ncity = Bonn\ndays = 3\nplaces = [1, 2]\n</call>\n"),
]

TEXT = {"type": "string"}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
        "city": TEXT,
        "days": {"type": "integer"},
        "hourly": {"type": "boolean"},
        "places": {"type": "array"},
        "options": {"type": "object"},
    }}}},
    {"type": "function", "function": {"name": "time"}},
    {"type": "function", "function": {"name": "maps.find_route", "parameters": {
        "type": "object", "properties": {"from": TEXT, "to": TEXT}}}},
]


def anchor(template):
    first = template.get("start_anchor", "<|message_model|>")
    return first if isinstance(first, str) else first[0]


def meant(template, opens, text):
    opened = template["fields"].get("reasoning_content") or template["fields"].get("thinking")
    prefix = anchor(template) + (opened["open"] + "\n" if opens else "")
    try:
        message = parse_response(text, template, prefix=prefix, tools=TOOLS)
    except ValueError:
        return None
    calls = message.get("tool_calls") or []
    calls = calls if isinstance(calls, list) else [calls]
    return {
        "content": message.get("content", ""),
        "reasoning": message.get("thinking") or message.get("reasoning_content") or "",
        "calls": [[call["function"]["name"], call["function"]["arguments"]] for call in calls],
    }


cases = []
for name, about, opens, text in CASES:
    cases.append({
        "template": name,
        "name": about,
        "opens": opens,
        "text": text,
        # Null where `transformers` raises.
        "answer": meant(TEMPLATES[name], opens, text),
    })
print(json.dumps({"templates": TEMPLATES, "tools": TOOLS, "cases": cases}, indent=1, ensure_ascii=False))
