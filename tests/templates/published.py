"""Chat templates of published models, which may not be kept here, and what transformers makes of them.

    python published.py fetch DIR    # the templates, out of two source packages of PyPI; needs nothing but Python
    python published.py make DIR     # published.json anew; needs transformers and jinja2 (see make_reference.py)

`published.json` holds no template and no prompt: a hash of each rendering, and of each template what its model
writes where it calls tools, so that parsers read what templates write. `fetch` leaves a folder alone that is there.
"""

import argparse
import hashlib
import io
import json
import pathlib
import re
import tarfile
import urllib.request

HERE = pathlib.Path(__file__).parent
PYPI = "https://files.pythonhosted.org/packages/"
SOURCES = [
    ("llama_cpp_python-0.3.36", PYPI + "ec/e9/e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/",
     "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"),
    ("vllm-0.33.0", PYPI + "f7/25/aa5684e9c59d6fc75f78926b7f15e8d9adc7de2d9e6e7575b80776ad8169/",
     "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"),
]
# Templates of rankers and embedders: no conversations.
LEFT_OUT = re.compile("rerank|embed|vlm2vec|zerank|dse_qwen")


def fetch(folder):
    if folder.exists():
        return
    unfinished = folder.with_name(folder.name + ".part")
    unfinished.mkdir(parents=True, exist_ok=True)
    for name, place, digest in SOURCES:
        with urllib.request.urlopen(place + name + ".tar.gz", timeout=120) as answer:
            package = answer.read()
        found = hashlib.sha256(package).hexdigest()
        if found != digest:
            raise SystemExit(f"{name}.tar.gz has the SHA-256 {found}, not {digest}")
        with tarfile.open(fileobj=io.BytesIO(package)) as files:
            for member in files:
                path = pathlib.PurePosixPath(member.name)
                if member.isfile() and path.suffix == ".jinja" and not LEFT_OUT.search(path.name):
                    text = files.extractfile(member).read()
                    (unfinished / f"{name.split('-')[0]}__{path.name}").write_bytes(text)
    unfinished.rename(folder)


# Marks that end a message, and what templates put behind them, which no model writes.
ENDS = re.compile(
    r"<\|END_OF_TURN_TOKEN\|>|<｜end▁of▁sentence｜>|<SPECIAL_12>|</assistant>|<\|calls\|>|<\|close\|>message"
    r"|\[e~\[|<turn\|>|</s>|<\|(?:im_end|eot_id|eom_id|eot|end|endoftext|return|role_end|assistant_end|user)\|>"
    r"|<｜hy_eos:opensource｜>|<end_of_turn>|<seed:eos>|<end_of_sentence>|<sep>|<\|tool_response>|<\|eos\|>|<\|end_of_text\|>")
# Marks that open the reasoning at the end of a prompt.
OPENS = {"<think>", "<mm:think>", "<seed:think>", "<think:opensource>", "<|open|>think<|sep|>"}


def turn(render, source, conversation, tokens, arguments_as, wrap):
    """What the assistant writes in the second message, if the template tells."""
    first = {**conversation, "messages": conversation["messages"][:1]}
    both = {**conversation, "messages": conversation["messages"][:2], "add_generation_prompt": False}
    try:
        before = render(source, {**first, "add_generation_prompt": False}, tokens, arguments_as, wrap)
        asked = render(source, first, tokens, arguments_as, wrap)
        whole = render(source, both, tokens, arguments_as, wrap)
    except Exception:
        return None
    if not whole.startswith(before) or not asked.startswith(before):
        return None
    rest, header = whole[len(before):], asked[len(before):].strip()
    opens = header.endswith(tuple(OPENS))
    # In turns of the past the reasoning is left out, or closed where it was opened.
    for mark in [*OPENS, "<think></think>", "</think>", ""]:
        start = header.removesuffix(mark).rstrip()
        if header.endswith(mark) and rest.lstrip().startswith(start):
            rest = rest.lstrip()[len(start):]
            break
    else:
        return None
    if opens and rest.lstrip().startswith(mark):
        rest = rest.lstrip()[len(mark):]
    elif mark and not opens:
        rest = rest.lstrip().removeprefix(mark)
    elif opens and not re.match(r"\s*(</|<\|close)", rest):
        opens = False
    text = ENDS.split(rest)[0].rstrip().removesuffix("<|message_sep|>")
    called = all(call["function"]["name"] in text for call in conversation["messages"][1]["tool_calls"])
    return {"text": text, "opens": opens} if called else None


def make(folder):
    import make_reference as reference

    user, calls, call = reference.user, reference.calls, reference.call
    tools = [reference.WEATHER, reference.CLOCK]
    turns = {
        "one call": {"messages": [user("u"), calls(call("get_weather", {"city": "Zürich"}))]},
        "awkward text": {"messages": [user("u"), calls(call("get_weather", {"city": "a \"b\" <c> 1,2 = {d}"}))]},
        "two calls": {"messages": [
            user("u"), calls(call("get_weather", {"city": "Bonn", "days": 2}, 1), call("time", {}, 2))]},
        "content and call": {"messages": [
            user("u"), calls(call("get_weather", {"city": "Rom"}), content="Let me look.")]},
    }
    document = {"today": "2026-03-01", "conversations": reference.CONVERSATIONS, "turns": {
        name: {"content": conversation["messages"][1]["content"], "calls": [
            [item["function"]["name"], item["function"]["arguments"]]
            for item in conversation["messages"][1]["tool_calls"]]}
        for name, conversation in turns.items()}, "templates": {}}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        facts = reference.facts_of(source)
        tokens = {name: facts[name] for name in ("bos_token", "eos_token")}
        arguments_as = "object" if reference.prints_objects(source, tokens) else "text"
        wrap = reference.needs_parts(source, tokens)
        renderings = {}
        for name, conversation in reference.CONVERSATIONS.items():
            try:
                text = reference.render(source, conversation, tokens, arguments_as, wrap)
                renderings[name] = hashlib.sha256(text.encode()).hexdigest()
            except Exception:
                renderings[name] = None
        written = {name: turn(reference.render, source, {**conversation, "tools": tools}, tokens, arguments_as, wrap)
                   for name, conversation in turns.items()}
        document["templates"][path.name] = {
            **facts, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "renderings": renderings,
            "turns": {name: text for name, text in written.items() if text}}
    out = HERE / "published.json"
    out.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["fetch", "make"])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    fetch(options.folder)
    if options.command == "make":
        make(options.folder)


if __name__ == "__main__":
    main()
