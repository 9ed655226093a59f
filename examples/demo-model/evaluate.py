"""Accuracy on held-out prompts, skill by skill.

    evaluate.py --model model                              in this process, with transformers
    evaluate.py --base-url http://127.0.0.1:8080/v1        over HTTP; adds the rows with a grammar

With --check the exit status says whether the targets are met.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request

from heldout import GRAMMAR, SKILLS, cases, fits, judge, parse

CLOSED, ADDRESSED, VALID = 0.95, 0.90, 1.0


class Local:
    def __init__(self, folder):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch = torch
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def prompt(self, case):
        return self.tokenizer.apply_chat_template(case["messages"], tools=case.get("tools"), add_generation_prompt=True, tokenize=False,
                                                  **({"enable_thinking": False} if case.get("no_think") else {}))

    def answer(self, batch, max_new_tokens=300):
        order = sorted(range(len(batch)), key=lambda i: len(self.prompt(batch[i])))
        out = [None] * len(batch)
        for start in range(0, len(order), 32):
            part = order[start:start + 32]
            x = self.tokenizer([self.prompt(batch[i]) for i in part], return_tensors="pt", padding=True, add_special_tokens=False)
            with self.torch.inference_mode():
                y = self.model.generate(**x, max_new_tokens=max_new_tokens, do_sample=False)
            for i, ids in zip(part, y[:, x["input_ids"].shape[1]:]):
                out[i] = parse(self.tokenizer.decode(ids, skip_special_tokens=False))
        return out

    def forced(self, case):
        """Whether every value is right when the grammar dictates all the rest."""
        prompt, target = self.prompt(case), case["content"]
        a = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        e = self.tokenizer(target, add_special_tokens=False, return_offsets_mapping=True)
        ids = self.torch.tensor([a + e["input_ids"]])
        with self.torch.inference_mode():
            best = self.model(ids).logits[0].argmax(-1).tolist()
        learn = [any(x <= s and t <= y for x, y in case["learn"]) for s, t in e["offset_mapping"]]
        return all(best[len(a) + i - 1] == t for i, t in enumerate(e["input_ids"]) if learn[i])


class Remote:
    def __init__(self, url, name, key):
        self.url, self.key = url.rstrip("/"), key
        self.name = name or self.get("/models")["data"][0]["id"]

    def get(self, path, body=None):
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.key}"} if self.key else {})
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, headers)
        with urllib.request.urlopen(request, timeout=120) as r:
            return json.load(r)

    def answer(self, batch, max_new_tokens=300):
        return [self.one(c, max_new_tokens) for c in batch]

    def one(self, case, max_new_tokens):
        body = {"model": self.name, "messages": self.wire(case["messages"]), "temperature": 0, "max_tokens": max_new_tokens}
        if case.get("tools"):
            body["tools"] = case["tools"]
        if case.get("no_think"):
            body["chat_template_kwargs"] = {"enable_thinking": False}
        body |= case.get("request", {})
        try:
            m = self.get("/chat/completions", body)["choices"][0]["message"]
        except urllib.error.HTTPError as e:
            print(f"HTTP {e.code}: {e.read()[:300]!r}", file=sys.stderr)
            return "", "", [None]
        calls = []
        for c in m.get("tool_calls") or []:
            try:
                calls.append((c["function"]["name"], json.loads(c["function"]["arguments"])))
            except (ValueError, KeyError):
                calls.append(None)
        return m.get("reasoning_content") or "", (m.get("content") or "").strip(), calls

    @staticmethod
    def wire(messages):
        """Calls get ids and their arguments become strings, as the API wants them."""
        out, ids = [], []
        for m in messages:
            m = dict(m)
            if m.get("tool_calls"):
                ids = [f"call_{len(out)}_{i}" for i in range(len(m["tool_calls"]))]
                m["tool_calls"] = [{"id": i, "type": "function", "function": {
                    "name": c["function"]["name"], "arguments": json.dumps(c["function"]["arguments"], ensure_ascii=False)}}
                    for i, c in zip(ids, m["tool_calls"])]
            elif m["role"] == "tool":
                m["tool_call_id"] = ids.pop(0)
            out.append(m)
        return out


def valid(case, content, calls):
    """With a grammar: does the output obey the schema or the declaration?"""
    if "schema" in case:
        try:
            return fits(json.loads(content), case["schema"])
        except ValueError:
            return False
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in case["tools"]}
    return bool(calls) and None not in calls and all(n in declared and fits(a, declared[n]) for n, a in calls)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", help="folder of a model")
    p.add_argument("--base-url", help="a running server")
    p.add_argument("--name", help="the model's name on the server; the first one if not given")
    p.add_argument("--key", help="an API key")
    p.add_argument("-n", type=int, default=200, help="prompts a skill")
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--only", help="skills whose name contains this")
    p.add_argument("--show", type=int, default=0, help="print so many mistakes a skill")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    source = Remote(a.base_url, a.name, a.key) if a.base_url else Local(a.model)
    rows, missed = [], False

    def row(name, right, n, target):
        nonlocal missed
        ok = right / n >= target
        missed |= not ok
        rows.append(ok)
        print(f"| {name:<42} | {n:>4} | {right:>5} | {100 * right / n:>6.1f} % | {100 * target:>4.0f} % {'' if ok else 'missed'}", flush=True)

    print(f"| {'skill':<42} | {'n':>4} | right | accuracy | target\n|{'-' * 44}|-----:|------:|---------:|-------")
    total = [0, 0]
    tools = [0, 0]
    for skill in SKILLS:
        if a.only and a.only not in skill:
            continue
        batch = cases(skill, a.n, a.seed)
        verdicts, shown = [], 0
        for c, reply in zip(batch, source.answer(batch)):
            verdicts.append(judge(c, *reply))
            if not verdicts[-1][0] and shown < a.show:
                shown += 1
                print("  ?", json.dumps(c["messages"][-1]["content"], ensure_ascii=False), "\n  =", c["calls"] or c["content"], "\n  !", reply)
        if "call" in skill:
            addressed = sum(x for _, x in verdicts)
            tools = [tools[0] + addressed, tools[1] + len(batch)]
            row(f"{skill}: well-formed, right tool", addressed, len(batch), ADDRESSED)
            row(f"{skill}: every value exact", sum(r for r, _ in verdicts), len(batch), ADDRESSED)
        else:
            right = sum(r for r, _ in verdicts)
            total = [total[0] + right, total[1] + len(batch)]
            row(skill, right, len(batch), CLOSED)
    if total[1]:
        row("the closed world, all skills", *total, CLOSED)
    if tools[1]:
        row("calls, well-formed and right tool, all", *tools, ADDRESSED)
    for skill in GRAMMAR:
        if a.only and a.only not in skill:
            continue
        batch = cases(skill, a.n, a.seed)
        if a.base_url:
            replies = source.answer(batch)
            row(f"{skill}: valid", sum(valid(c, r[1], r[2]) for c, r in zip(batch, replies)), len(batch), VALID)
            row(f"{skill}: right", sum(judge(c, *r)[0] for c, r in zip(batch, replies)), len(batch), ADDRESSED)
        elif "schema" in batch[0]:
            row(f"{skill}: right", sum(source.forced(c) for c in batch), len(batch), ADDRESSED)
    if a.check and missed:
        sys.exit("below the targets")


if __name__ == "__main__":
    main()
