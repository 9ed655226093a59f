// A retriever: chunks are paragraphs, put together up to the size that is asked for; a query of several questions is
// searched for as a whole and question by question; and of one document only so many passages are used:
// {"per_document": 2}.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

// Queries that one may become.
const MOST_QUERIES = 8;

// Passages of one document that a model is given at most.
let perDocument = 2;

export const lifecycle = {
  prepare() {
    perDocument = JSON.parse(settings()).per_document ?? perDocument;
  },
};

const bytesOf = (text) => new TextEncoder().encode(text).length;

/** @type {import('mortise:plugin/retriever@0.3.0').Retriever} */
export const retriever = {
  describe() {
    return { chunk: true, rewrite: true, assemble: true };
  },

  chunk(context, document, sizes) {
    // Two neighbours have more bytes than that, so that there are never too many chunks.
    const least = Math.floor((2 * bytesOf(document.text)) / Math.max(1, sizes.maxChunks)) + 2;
    const most = Math.max(least, sizes.aboutBytes);
    const chunks = [];
    let start = 0;
    for (const paragraph of document.text.split('\n\n')) {
      const end = start + bytesOf(paragraph);
      const last = chunks.at(-1);
      const joins = last !== undefined && end - last.start <= most;
      if (paragraph.trim() !== '' && joins) last.end = end;
      else if (paragraph.trim() !== '') chunks.push({ start, end });
      start = end + 2;
    }
    return chunks;
  },

  rewrite(context, query) {
    const parts = query.match(/[^?;]+[?;]?/g) ?? [];
    const questions = parts.map((part) => part.trim()).filter((part) => /[\p{L}\p{N}]/u.test(part));
    return questions.length > 1 ? [query, ...questions.slice(0, MOST_QUERIES - 1)] : [query];
  },

  assemble(context, query, candidates, budget) {
    const used = new Map();
    const chosen = [];
    // Numbers of more than 31 bits arrive as negative ones; `>>> 0` makes them what they were.
    let left = budget.tokens >>> 0;
    for (const [index, candidate] of candidates.entries()) {
      const { document } = candidate;
      const tokens = candidate.tokens >>> 0;
      const count = (used.get(document) ?? 0) + 1;
      used.set(document, count);
      // One that has no room is left out, and those behind it may still have.
      if (count > perDocument || tokens > left || chosen.length >= budget.passages) continue;
      left -= tokens;
      chosen.push(index);
    }
    return { chosen, joint: 'blank-line' };
  },
};
