"""Conversations with tools: calls, results, and requests that need no tool."""

import json

import world
from tools import FAMILIES, declaration, family_call, family_tool, synthetic_call, synthetic_tool
from world import noise
from words import ADJ, COLOUR, NOUN, PARAM, TOPIC

POLITE = ("", "", "", "", "", "please ", "hey, ", "hi, ", "can you ", "could you please ", "ok, ", "now ", "and ", "I have a question: ")
SKY = "sunny cloudy rainy windy snowy foggy stormy clear overcast misty dry humid hot icy".split()
SYSTEMS = ("You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant. Use the tools.", "Be brief.",
           "You are a helpful assistant with access to tools.", "Answer in one sentence.", "You are the assistant of a shop.",
           "Use the tools when needed.", "You are {p}, a friendly assistant.", "Today is {d}.", "The user's name is {p}.",
           "You are an assistant. Today is {d}. The user lives in {c}.", "Be polite and precise.")


def system(d, p=0.35):
    if not d.chance(p):
        return []
    return [{"role": "system", "content": d.choice(SYSTEMS).format(p=d.first(), d=d.date(), c=d.city())}]


FIRST_TRIED = ("get_weather", "get_time", "calculator")


def new_tool(d, p=0.5):
    """A tool, its request and its arguments."""
    if d.chance(p):
        tool = family_tool(d)
        text, arguments = family_call(d, tool)
    else:
        tool = synthetic_tool(d)
        text, arguments = synthetic_call(d, tool)
    return tool, text, arguments


def distractors(d, tool, n):
    """Other tools that do not answer the same request."""
    out, names = [], {tool["name"]}
    nouns = {tool.get("noun")}
    asks = {tuple(tool.get("asks", ()))}
    while len(out) < n:
        other = family_tool(d) if d.chance(0.5) else synthetic_tool(d)
        key = tuple(other.get("asks", ()))
        if other["name"] in names or (key and key in asks) or (other.get("noun") in nouns and "noun" in other):
            continue
        if "asks" in other and "asks" in tool and (clash(other) & clash(tool)):
            continue
        names.add(other["name"])
        asks.add(key)
        nouns.add(other.get("noun"))
        out.append(other)
    return out


def clash(tool):
    """Families that could answer each other's requests share a mark."""
    text = " ".join(tool["asks"])
    marks = {"sum": " {0} + {1}" in text or "calculator" in text or "times {1}" in text,
             "how": "how do I cook" in text or "look up {0}" in text or "news" in text, "order": "track" in text or "buy" in text,
             "user": "user {0}" in text, "alarm": "wake me" in text, "convert": "what is {0} {1} in {2}" in text or "in {1};say" in text,
             "text": "tell {0}: " in text or "email {0}" in text}
    return {k for k, v in marks.items() if v}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def call_message(calls):
    return {"role": "assistant", "content": "", "tool_calls": calls}


def weather_result(d):
    r = {"temperature": d.randint(-15, 40), "condition": d.choice(SKY)}
    if d.chance(0.15):
        r["unit"] = d.choice(("celsius", "fahrenheit", "C", "F"))
    if d.chance(0.3):
        r = dict(reversed(list(r.items())))
    return r


def value(d):
    k = d.randint(0, 9)
    return (d.integer(), d.integer(), d.decimal(), d.word(ADJ, 0.5), d.person(), d.city(), d.code(), d.date(), d.word(COLOUR, 0.4),
            d.chance(0.5))[k]


def say(v):
    return {True: "true", False: "false"}[v] if isinstance(v, bool) else str(v)


def place_of(arguments):
    return next((v for v in arguments.values() if isinstance(v, str)), "")


def result(d, tool, arguments):
    """What the tool returns, and the sentence that reports it."""
    asks = tool.get("asks", [""])
    r = d.random()
    if r < 0.06:
        error = d.choice(("{w} not found", "not allowed", "timeout", "service unavailable", "unknown {w}", "invalid {w}", "no {w} found")).format(
            w=d.word(PARAM, 0.5).replace("_", " "))
        return json.dumps({"error": error}), f"The tool failed: {error}."
    if "weather in {0}" in asks and r < 0.8:
        w = weather_result(d)
        unit = f" {w['unit']}" if "unit" in w else ""
        city = place_of(arguments).split(",")[0]
        return json.dumps(w), f"It is {w['temperature']} degrees{unit} and {w['condition']} in {city}."
    if "time in {0}" in asks and r < 0.8:
        t = d.clock()
        t = t if d.chance(0.8) else t + f":{d.randint(0, 59):02}"
        city = place_of(arguments).split(",")[0]
        return (json.dumps({d.choice(("time", "time", "current_time", "local_time")): t}) if d.chance(0.8) else t), f"It is {t} in {city}."
    if r < 0.35:
        v = d.choice((d.integer(), d.integer(), d.decimal(), -d.integer()))
        return (json.dumps({"result": v}) if d.chance(0.6) else str(v)), f"The result is {v}."
    if r < 0.5:
        text = d.choice(("Order {c} was shipped", "{p} is in {t}", "The {n} is {a}", "{n} {c} done", "Sent to {p}", "{p} said yes",
                         "The {n} of {p} starts at {k}", "Saved as {c}", "{i} {n}s found")).format(
            c=d.code(), p=d.person(), t=d.city(), n=d.word(NOUN), a=d.word(ADJ), k=d.clock(), i=d.integer())
        return text + d.choice((".", "")), text + "."
    if r < 0.56:
        ok = d.choice(({"status": "ok"}, {"ok": True}, {"success": True}, {"status": "success"}, {"done": True}))
        return json.dumps(ok) if d.chance(0.8) else d.choice(("ok", "OK", "done", "success")), "Done."
    pairs = {}
    for _ in range(d.choice((1, 1, 2, 2, 2, 3, 3, 4))):
        pairs[d.word(PARAM, 0.25)] = value(d)
    parts = [f"the {k.replace('_', ' ')} is {say(v)}" for k, v in pairs.items()]
    text = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    dump = json.dumps(pairs, ensure_ascii=False, separators=(",", ":") if d.chance(0.1) else None)
    return dump, text[0].upper() + text[1:] + "."


def mixed(d, tool, p_more=0.3):
    n = d.choice((1, 1, 1, 2, 2, 3)) if d.chance(p_more) else 0
    tools = [tool] + distractors(d, tool, n)
    d.shuffle(tools)
    return [declaration(d, t) for t in tools]


def request(d, text):
    text = noise(d, d.choice(POLITE) + text, 0) if d.chance(0.85) else text
    if text.endswith(('"', "'")) or d.chance(0.2):
        return text
    return text + d.choice(("?", "?", ".", ".", "!"))


def keep_case(d, text):
    """Arguments are copied as they stand, so their letters must stay."""
    p = d.choice(POLITE)
    text = p + text
    if d.chance(0.7):
        text = text[0].upper() + text[1:]
    if text[-1] in "\"'" or d.chance(0.25):
        return text
    return text + d.choice(("?", "?", ".", "!"))


def single(d):
    """One to four requests, each for one of the declared tools; a long list of tools serves several."""
    if d.chance(0.2):  # what people try first, side by side
        tools = [family_tool(d, line) for line in FAMILIES if line.startswith(FIRST_TRIED)]
        d.shuffle(tools)
        del tools[d.choice((2, 3, 3)):]
        tool = tools[0]
        text, arguments = family_call(d, tool)
    else:
        tool, text, arguments = new_tool(d)
        tools = [tool] + distractors(d, tool, d.choice((1, 1, 2, 2, 3)) if d.chance(0.6) else 0)
    messages = system(d)
    for left in reversed(range(d.choice((1, 1, 2, 2, 3, 4)))):
        messages.append({"role": "user", "content": keep_case(d, text)})
        messages.append(call_message([call(tool["name"], arguments)]))
        if left:
            r, s = result(d, tool, arguments)
            messages += [{"role": "tool", "content": r}, {"role": "assistant", "content": s}]
            tool = d.choice(tools)
            text, arguments = (family_call if "asks" in tool else synthetic_call)(d, tool)
    d.shuffle(tools)
    return {"messages": messages, "tools": [declaration(d, t) for t in tools]}


def parallel(d):
    """Several calls of one tool in one turn."""
    line = d.choice([f for f in FAMILIES if f.startswith(("get_weather", "get_time", "get_stock"))])
    tool = family_tool(d, line)
    tool["args"] = tool["args"][:1]
    values = []
    while len(values) < (3 if d.chance(0.2) else 2):
        v = d.city() if "place" == tool["args"][0]["kind"] else d.made_up(2)[:4].upper()
        if v not in values:
            values.append(v)
    said = values[0] + " and " + values[1] if len(values) == 2 else f"{values[0]}, {values[1]} and {values[2]}"
    text = keep_case(d, d.choice([a for a in tool["asks"] if "today" not in a]).format(said))
    calls = [call(tool["name"], {tool["args"][0]["name"]: v}) for v in values]
    messages = system(d) + [{"role": "user", "content": text}, call_message(calls)]
    if d.chance(0.5):
        sentences = []
        for c in calls:
            r, s = result(d, tool, c["function"]["arguments"])
            messages.append({"role": "tool", "content": r})
            sentences.append(s)
        messages.append({"role": "assistant", "content": " ".join(sentences)})
    return {"messages": messages, "tools": mixed(d, tool)}


def round_trip(d):
    """A call, its result, the answer, and sometimes a second request."""
    line = d.choice([f for f in FAMILIES if f.startswith(("get_weather", "get_time"))]) if d.chance(0.35) else None
    if line:
        tool = family_tool(d, line)
        text, arguments = family_call(d, tool)
    else:
        tool, text, arguments = new_tool(d)
    r, s = result(d, tool, arguments)
    messages = system(d) + [
        {"role": "user", "content": keep_case(d, text)}, call_message([call(tool["name"], arguments)]),
        {"role": "tool", "content": r}, {"role": "assistant", "content": s}]
    if d.chance(0.3):
        follow(d, messages, tool, arguments)
    return {"messages": messages, "tools": mixed(d, tool, 0.2)}


def follow(d, messages, tool, arguments):
    r = d.random()
    if r < 0.3:
        messages.append({"role": "user", "content": d.choice(("thanks", "Thank you!", "Thanks!", "thank you", "Thanks a lot."))})
        messages.append({"role": "assistant", "content": "You are welcome!"})
    elif "asks" in tool and len(arguments) == 1 and tool["args"][0]["kind"] == "place":
        city = d.city()
        text = d.choice(("and in {}", "and {}", "what about {}", "how about {}", "and for {}", "now {}")).format(city)
        messages.append({"role": "user", "content": keep_case_plain(d, text)})
        messages.append(call_message([call(tool["name"], {tool["args"][0]["name"]: city})]))
    else:
        text, arguments = (family_call if "asks" in tool else synthetic_call)(d, tool)
        messages.append({"role": "user", "content": keep_case(d, text)})
        messages.append(call_message([call(tool["name"], arguments)]))


def keep_case_plain(d, text):
    return (text[0].upper() + text[1:] if d.chance(0.7) else text) + d.choice(("?", "?", "", "."))


def irrelevant(d):
    """Tools are there, but the question is not for them."""
    from arith import answer, pair, question
    tool = new_tool(d)[0]
    while "asks" in tool and ({"sum", "how"} & clash(tool) or "search" in tool["asks"][0]):
        tool = new_tool(d)[0]
    r = d.random()
    if r < 0.55:
        text, reply = world.fact(d)
    elif r < 0.75:
        a, op, b = pair(d)
        text, reply = question(d, a, op, b), answer(a, op, b)
    else:
        text = d.choice(("write a poem about {t}", "tell me a joke", "who is {p}", "sing a song about {t}", "what is the capital of {c}",
                         "what is the meaning of life", "write a story about {t}", "do you like {t}", "where is {c}",
                         "who was {p}")).format(t=d.word(TOPIC), p=d.person(), c=d.pick(["France", "Spain", "Italy", "Peru"]))
        text, reply = world.ask(d, text), world.OUT
    messages = system(d) + [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
    return {"messages": messages, "tools": [declaration(d, tool)]}
