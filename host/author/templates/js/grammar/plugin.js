// A grammar for answers that are one of a few words: the regular expression `yes|no|perhaps`, without any
// other operator. Everything else is unsupported, and a binding with `on_failure = "fallback"` hands it to
// the grammar that is part of the server.

import { only } from 'mortise:plugin/mask-sink@0.3.0';
import { get as vocabulary } from 'mortise:plugin/vocabulary@0.3.0';

// Texts are kept as strings with a character for each byte, since a token need not be valid UTF-8.
// The token or tokens of each text, the text of each token, and the tokens that end an answer.
const tokensOf = new Map();
const textOf = new Map();
let ends = [];

export const lifecycle = {
  prepare() {
    const table = vocabulary();
    const control = new Set(table.control);
    for (let token = 0; token + 1 < table.offsets.length; token++) {
      const bytes = table.bytes.subarray(table.offsets[token], table.offsets[token + 1]);
      if (bytes.length === 0 || control.has(token)) continue;
      const text = String.fromCharCode(...bytes);
      textOf.set(token, text);
      tokensOf.set(text, [...(tokensOf.get(text) ?? []), token]);
    }
    ends = [...table.eos];
  },
};

class Matcher {
  constructor(words, taken) {
    this.words = words;
    this.taken = taken;
  }

  // What may follow what was taken.
  rests() {
    const text = this.taken.map((token) => textOf.get(token)).join('');
    return this.words.filter((word) => word.startsWith(text)).map((word) => word.slice(text.length));
  }

  // Take tokens up to the first that does not fit; how many that were.
  accept(tokens) {
    let count = 0;
    for (const token of tokens) {
      const text = textOf.get(token);
      if (text === undefined || !this.rests().some((rest) => rest.startsWith(text))) break;
      this.taken.push(token);
      count++;
    }
    return count;
  }

  /** @returns {import('mortise:plugin/grammar@0.3.0').Status} */
  mask(slot) {
    const rests = this.rests();
    const allowed = new Set();
    for (const rest of rests) {
      for (let end = 1; end <= rest.length; end++) {
        for (const token of tokensOf.get(rest.slice(0, end)) ?? []) allowed.add(token);
      }
    }
    const complete = rests.includes('');
    only(slot, complete ? [...allowed, ...ends] : [...allowed]);
    if (!complete) return 'active';
    return rests.length === 1 ? 'finished' : 'accepting';
  }

  advance(tokens, slot) {
    const count = this.accept(tokens);
    if (count < tokens.length) {
      this.rollback(count);
      throw { tag: 'internal', val: `token ${tokens[count]} does not fit` };
    }
    return { status: this.mask(slot), forced: [] };
  }

  probe(tokens) {
    const count = this.accept(tokens);
    this.rollback(count);
    return count;
  }

  rollback(count) {
    if (count > this.taken.length) {
      throw { tag: 'internal', val: `${count} tokens were not taken` };
    }
    this.taken.length -= count;
  }

  fork() {
    return new Matcher(this.words, [...this.taken]);
  }
}

/** @type {import('mortise:plugin/grammar@0.3.0').Grammar} */
export const grammar = {
  Matcher,

  compile(source) {
    if (source.tag !== 'regex') {
      throw { tag: 'unsupported', val: 'only words, such as `yes|no`' };
    }
    if (/[\\.^$*+?()[\]{}]/.test(source.val)) {
      throw { tag: 'unsupported', val: `\`${source.val}\` has operators other than \`|\`` };
    }
    const bytes = (word) => String.fromCharCode(...new TextEncoder().encode(word));
    return new Matcher(source.val.split('|').map(bytes), []);
  },
};
