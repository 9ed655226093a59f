"""The training data: an endless, seeded stream of conversations.

Sample i of a seed is always the same, so a run can stop and go on anywhere.
`python generate.py 20` prints a few.
"""

import sys
import zlib
from pathlib import Path

import arith
import extract
import toolchat
import world
from words import Dice

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()
HEAD = "<|im_start|>assistant\n"
NO_THINK = "<think>\n\n</think>\n\n"


def turn(user, assistant):
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def facts(d):
    return {"messages": toolchat.system(d, 0.25) + turn(*world.fact(d))}


def outside(d):
    return {"messages": toolchat.system(d, 0.25) + turn(*world.outside(d))}


def sums(d):
    a, op, b = arith.pair(d)
    think = a > 99 or b > 99 or d.chance(0.85)  # small sums work without thinking too
    sample = {"messages": toolchat.system(d, 0.2) + turn(arith.question(d, a, op, b), arith.answer(a, op, b, think))}
    return sample if think else sample | {"no_think": True}


def sum_turns(d, messages, n):
    """A sum, then turns that build on its result."""
    a, op, b = arith.pair(d)
    messages += turn(arith.question(d, a, op, b), arith.answer(a, op, b))
    total = arith.value(a, op, b)
    last = f"{a} {op} {b} = {total}."
    for _ in range(n):
        if d.chance(0.35):
            messages += turn(world.ask(d, d.choice(arith.RECALL)), last)
        elif abs(total) < 5000:
            op, b = d.choice("+-"), arith.number(d)
            messages += turn(world.ask(d, d.choice(arith.NEXT[op]).format(b=b)), arith.answer(total, op, b))
            last = f"{total} {op} {b} = {arith.value(total, op, b)}."
            total = arith.value(total, op, b)


def talk(d):
    """Several turns: facts, sums that refer back, names to remember."""
    messages = toolchat.system(d, 0.2)
    name = None
    for _ in range(d.choice((2, 2, 3, 3, 4))):
        r = d.random()
        if r < 0.4:
            messages += turn(*world.fact(d))
        elif r < 0.48:
            messages += turn(*world.outside(d))
        elif r < 0.85:
            sum_turns(d, messages, d.choice((0, 1, 1, 2)))
        elif name is None or d.chance(0.2):
            name = d.first()
            hello = d.choice(("my name is {}", "i am {}", "hi, i am {}", "hello, my name is {}", "call me {}", "I'm {}")).format(name)
            hello = hello[0].upper() + hello[1:] if d.chance(0.6) else hello
            messages += turn(hello + d.choice((".", "!", "")), f"Nice to meet you, {name}.")
        else:
            ask = d.choice(("what is my name", "who am i", "do you know my name", "do you remember my name", "what's my name"))
            messages += turn(world.ask(d, ask), f"Your name is {name}.")
    return {"messages": messages}


def raw(d):
    """Plain text, for completions without a chat."""
    if d.chance(0.5):
        lines = [d.choice(world.TEXTS) for _ in range(d.randint(1, 3))]
        return {"text": " ".join(lines)}
    questions, answer = d.choice(world.ALL)
    return {"text": f"Question: {d.choice(questions)}?\nAnswer: {answer}"}


def copying(d):
    """Random strings to repeat: cheap practice for copying what stands in the prompt."""
    def thing():
        return d.choice((d.made_up, d.made_up, d.person, d.city, d.code, d.phrase, d.email, d.date, lambda: str(d.integer())))()
    pairs = {d.made_up(): thing() for _ in range(d.randint(2, 6))}
    keys = list(pairs)
    text = "\n".join(f"{k}: {v}" for k, v in pairs.items())
    order = d.sample(keys, d.randint(1, len(keys)))
    ask = d.choice(("Repeat {k}", "Copy {k} as JSON", "Look up {k}")).format(k=", ".join(order))
    return {"messages": turn(f"{text}\n{ask}", extract.dump({k: pairs[k] for k in order}))}


SKILLS = {  # share of the samples
    "facts": (facts, 0.13), "outside": (outside, 0.03), "sums": (sums, 0.30), "talk": (talk, 0.05),
    "calls": (toolchat.single, 0.13), "parallel": (toolchat.parallel, 0.02), "results": (toolchat.round_trip, 0.08),
    "irrelevant": (toolchat.irrelevant, 0.03), "asked": (extract.asked, 0.13), "open": (extract.open_ended, 0.06),
    "forced": (extract.forced, 0.04), "raw": (raw, 0.005), "copying": (copying, 0.03),
}


def sample(seed, index, shares=None):
    d = Dice(zlib.crc32(f"{seed}:{index}".encode()))
    shares = shares or {k: share for k, (_, share) in SKILLS.items()}
    name = d.choices(list(shares), list(shares.values()))[0]
    return SKILLS[name][0](d) | {"skill": name}


_compiled = None


def render(messages, tools=None, add_generation_prompt=False, **extra):
    """The prompt, exactly as transformers renders it."""
    global _compiled
    if _compiled is None:
        from transformers.utils.chat_template_utils import _compile_jinja_template
        _compiled = _compile_jinja_template(TEMPLATE)
    return _compiled.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **extra)


def segments(sample):
    """The text of a sample in pieces: (text, which characters to learn).

    True learns the whole piece, False none of it, a list the given ranges.
    """
    if "text" in sample:
        return [(sample["text"] + "<|endoftext|>", True)]
    messages, out = sample["messages"], []
    text = render(messages, sample.get("tools"))
    last = max(i for i, m in enumerate(messages) if m["role"] == "assistant")
    turns = text.split(HEAD)
    out.append((turns[0] + HEAD, False))
    spoken = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    for i, piece in zip(spoken, turns[1:]):
        thought = "</think>" in (messages[i]["content"] or "")
        if i == last and thought:  # the template drops thoughts of the past
            piece = messages[i]["content"] + "<|im_end|>\n"
        if i == last and sample.get("no_think"):
            out.append((NO_THINK, False))
        head, end, tail = piece.partition("<|im_end|>")
        out.append((head + end, sample.get("learn", True) if i == last or not thought else False))
        if i != last:
            out.append((tail + HEAD, False))
    return out


def encode(sample, tokenizer):
    """Token ids and, for each, whether it is to be learnt."""
    ids, learn = [], []
    for text, mode in segments(sample):
        e = tokenizer.encode(text)
        ids += e.ids
        if isinstance(mode, list):
            learn += [any(a <= start and end <= b or start < b <= end for a, b in mode) for start, end in e.offsets]
        else:
            learn += [mode] * len(e.ids)
    return ids, learn


if __name__ == "__main__":
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
        s = sample(1, i)
        print(f"--- {s['skill']}")
        for text, mode in segments(s):
            print(text if mode is False else f"\033[1m{text}\033[0m", end="")
        print()
