"""A retriever for contracts: each numbered clause is a chunk, a query is also searched for in the words that contracts use,
and a model reads the clauses in their order, with a rule between them.
Settings: {"words": {"quit": ["termination", "notice"]}}."""

import json
import re

from wit_world import exports
from wit_world.exports.retriever import Assembly, Joint, Span, Traits
from wit_world.imports import settings

# The beginning of a clause: `3. `, `3.4 `, `§ 3`, `Clause 3`, or a heading.
CLAUSE = re.compile(rb"^(?:\d+(?:\.\d+)*\.\s|\d+(?:\.\d+)+\s|\xc2\xa7\s?\d|(?i:clause)\s+\d|#+\s)", re.MULTILINE)

# Queries that one may become.
MOST_QUERIES = 8

words: dict[str, list[str]] = {}


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        words.update(json.loads(settings.get()).get("words", {}))


class Retriever(exports.Retriever):
    def describe(self):
        return Traits(chunk=True, rewrite=True, assemble=True)

    def chunk(self, context, document, sizes):
        # Places are counted in bytes, which `CLAUSE` cuts before an ASCII letter or a whole sign only.
        text = document.text.encode()
        starts = [0] + [found.start() for found in CLAUSE.finditer(text) if found.start() > 0]
        # Where there are too many of them, several make a chunk.
        starts = starts[:: -(-len(starts) // max(sizes.max_chunks, 1))]
        ends = starts[1:] + [len(text)]
        spans = [Span(start, end) for start, end in zip(starts, ends) if text[start:end].strip()]
        return spans or [Span(0, len(text))]

    def rewrite(self, context, query):
        asked = re.findall(r"\w+", query.lower())
        also = [term for word in asked for term in words.get(word, [])]
        return [query] + list(dict.fromkeys(also))[: MOST_QUERIES - 1]

    def assemble(self, context, query, candidates, budget):
        chosen, left = [], budget.tokens
        for index, candidate in enumerate(candidates):
            if len(chosen) < budget.passages and candidate.tokens <= left:
                left -= candidate.tokens
                chosen.append(index)
        chosen.sort(key=lambda index: (candidates[index].document, candidates[index].start))
        return Assembly(chosen, Joint.RULE)
