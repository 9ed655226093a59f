"""Makes reference.json: scores by `bm25s`, similarities by numpy, and their fusion, of a small corpus.

    pip install bm25s==0.3.16 numpy
    python make_reference.py > reference.json
"""

import json
import re

import bm25s
import numpy as np

DIMENSIONS, DOCUMENTS, QUERIES, BEST = 24, 120, 12, 10

random = np.random.default_rng(7)
vocabulary = [f"word{at}" for at in range(90)] + ["Größe", "naïve", "東京都", "3.4"]
weights = 1 / np.arange(1, len(vocabulary) + 1)
weights /= weights.sum()


def text(least, most):
    return " ".join(random.choice(vocabulary, random.integers(least, most), p=weights))


def unit(count):
    vectors = random.normal(size=(count, DIMENSIONS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def tokens(text):
    """Words in lower case; of a script without blanks, pairs of neighbours."""
    found = []
    for word in re.findall(r"[^\W_]+", text.lower()):
        unspaced = any("\u3400" <= letter <= "\u9fff" for letter in word)
        found += [word[at:at + 2] for at in range(len(word) - 1)] if unspaced else [word]
    return found


def best(scores):
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    return [at for at in order if scores[at] > -np.inf][:BEST]


texts, vectors = [text(5, 60) for _ in range(DOCUMENTS)], unit(DOCUMENTS)
index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
index.index([tokens(one) for one in texts], show_progress=False)
queries = []
for vector in unit(QUERIES):
    query = text(2, 6)
    lexical = index.get_scores(tokens(query)).astype(float)
    near = (vectors @ vector).astype(float)
    having = np.where(lexical > 0, lexical, -np.inf)
    by_words = sorted((at for at in range(DOCUMENTS) if lexical[at] > 0), key=lambda at: (-having[at], at))[:1000]
    by_meaning = sorted(range(DOCUMENTS), key=lambda at: (-near[at], at))[:1000]
    fused = np.full(DOCUMENTS, -np.inf)
    for ranking in (by_meaning, by_words):
        for rank, at in enumerate(ranking, 1):
            fused[at] = max(fused[at], 0) + 1 / (60 + rank)
    queries.append({
        "text": query,
        "vector": [float(number) for number in vector],
        "words": [[at, round(lexical[at], 5)] for at in best(having)],
        "meaning": [[at, round(near[at], 5)] for at in best(near)],
        "both": [[at, round(fused[at] / 2 * 61, 5)] for at in best(fused)],
    })
rows = [{"text": one, "vector": [round(float(n), 6) for n in vector]} for one, vector in zip(texts, vectors)]
print(json.dumps({"rows": rows, "queries": queries}, ensure_ascii=False))
