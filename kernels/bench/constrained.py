#!/usr/bin/env python3
"""What a constraint costs while a model decodes: tokens a second without one, with a JSON schema, and with a regular expression.

    python3 kernels/bench/constrained.py http://127.0.0.1:8080 MODEL [--streams 1,8] [--tokens 128] [--rounds 7] [--json]

The three take turns, so that what else the machine does weighs on all of them. Each stream is timed from its first token to its
last; rates of streams at once are added up. The ratio is the median over rounds, each against the free decode of its round. Needs
nothing but Python. The first request with each constraint is not timed: docs/plugins/cost.md has what compiling takes.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
import urllib.parse

# Longer than any limit on tokens.
MEMBER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "kind": {"enum": ["alpha", "beta", "gamma"]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
    },
    "required": ["name", "kind", "count", "tags"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": MEMBER, "minItems": 10000}
CONSTRAINTS = {
    "free": None,
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "list", "strict": True, "schema": SCHEMA}}},
    "regex": {"guided_regex": "([a-z]{2,9}[ ,.]){5000}"},
}


def stream(base, body):
    """Times at which tokens came, and their number."""
    connection = http.client.HTTPConnection(base.netloc, timeout=600)
    connection.request("POST", base.path.rstrip("/") + "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.read().decode()[:500]}")
    first = last = None
    tokens = 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(event["error"])
        # Each chunk says how many tokens there have been, whether they made text or not.
        so_far = (event.get("usage") or {}).get("completion_tokens", 0)
        if so_far > tokens:
            tokens, last = so_far, time.perf_counter()
            first = first or (last, tokens)
    connection.close()
    return first, last, tokens


def rate(base, model, constraint, streams, tokens):
    rates = []

    def one(number):
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"Write list {number} of things, as JSON."}],
            "max_tokens": tokens,
            "temperature": 1,
            "seed": number,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **(CONSTRAINTS[constraint] or {"ignore_eos": True}),
        }
        first, last, count = stream(base, body)
        if first and count > first[1]:
            rates.append((count - first[1]) / (last - first[0]))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rates) < streams:
        raise SystemExit(f"{streams - len(rates)} of {streams} streams were not answered")
    return sum(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    base = urllib.parse.urlsplit(asked.server)
    figures = []
    for streams in map(int, asked.streams.split(",")):
        seen = {name: [] for name in CONSTRAINTS}
        for round_ in range(asked.rounds + 1):
            rates = {name: rate(base, asked.model, name, streams, asked.tokens) for name in CONSTRAINTS}
            if round_:
                for name, value in rates.items():
                    seen[name].append(value)
        for name in CONSTRAINTS:
            if seen[name]:
                ratios = [value / free for value, free in zip(seen[name], seen["free"])]
                figures.append({"streams": streams, "constraint": name, "rounds": len(ratios),
                                "tokens_per_second": round(statistics.median(seen[name]), 1),
                                "of_free": round(statistics.median(ratios), 3)})
    if asked.json:
        print(json.dumps(figures, indent=1))
        return
    print("| streams | constraint | tokens a second | of free decode | rounds |\n|---|---|---:|---:|---:|")
    for row in figures:
        print(f"| {row['streams']} | {row['constraint']} | {row['tokens_per_second']} | {row['of_free']:.3f} | {row['rounds']} |")


main()
