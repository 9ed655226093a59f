"""A retriever: chunks are paragraphs, put together up to the size that is asked for; a query of several questions is
searched for as a whole and question by question; and of one document only so many passages are used:
{"per_document": 2}."""

import json
import re
from collections import Counter

from wit_world import exports
from wit_world.exports.retriever import Assembly, Joint, Span, Traits
from wit_world.imports import settings

# Queries that one may become.
MOST_QUERIES = 8

limits = {"per_document": 2}


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        limits.update(json.loads(settings.get()))


def paragraphs(text):
    """The places of the paragraphs of a text, without blank ones."""
    start = 0
    for part in text.split(b"\n\n"):
        if part.strip():
            yield start, start + len(part)
        start += len(part) + 2


class Retriever(exports.Retriever):
    def describe(self):
        return Traits(chunk=True, rewrite=True, assemble=True)

    def chunk(self, context, document, sizes):
        # Places are counted in bytes.
        text = document.text.encode()
        # Two neighbours have more bytes than that, so that there are never too many chunks.
        size = max(sizes.about_bytes, 2 * len(text) // max(sizes.max_chunks, 1) + 2)
        chunks = []
        for start, end in paragraphs(text):
            if chunks and end - chunks[-1].start <= size:
                chunks[-1].end = end
            else:
                chunks.append(Span(start, end))
        return chunks

    def rewrite(self, context, query):
        questions = [part.strip() for part in re.findall(r"[^?;]*[?;]?", query)]
        questions = [part for part in questions if any(letter.isalnum() for letter in part)]
        return [query] + (questions[: MOST_QUERIES - 1] if len(questions) > 1 else [])

    def assemble(self, context, query, candidates, budget):
        chosen, left, used = [], budget.tokens, Counter()
        for index, candidate in enumerate(candidates):
            used[candidate.document] += 1
            if used[candidate.document] > limits["per_document"] or candidate.tokens > left:
                continue
            if len(chosen) == budget.passages:
                break
            left -= candidate.tokens
            chosen.append(index)
        return Assembly(chosen, Joint.BLANK_LINE)
