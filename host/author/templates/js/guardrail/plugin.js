// A guardrail: it refuses what asks for a word of a list, and ends or mends answers that say one. Settings:
// {"words": ["swordfish"], "replace_with": "***"}.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

/** @typedef {import('mortise:plugin/guardrail@0.3.0').Verdict} Verdict */

const rules = { words: ['swordfish'], replace_with: undefined };
// Any of the words.
let pattern = /$^/;

export const lifecycle = {
  prepare() {
    Object.assign(rules, JSON.parse(settings()));
    const words = rules.words.map((word) => word.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
    if (words.length > 0) pattern = new RegExp(words.join('|'), 'iu');
  },
};

// The first word in the text: where it begins, and where it ends.
function find(text) {
  const found = pattern.exec(text);
  return found === null ? undefined : [found.index, found.index + found[0].length];
}

// Whether the text ends in the middle of a word.
function mayGoOn(text) {
  const begins = (word) => {
    const end = text.slice(1 - word.length).toLowerCase();
    return [...end].some((_, at) => word.toLowerCase().startsWith(end.slice(at)));
  };
  return rules.words.some((word) => word.length > 1 && begins(word));
}

function mended(text) {
  let found = find(text);
  let said = '';
  while (found !== undefined) {
    said += text.slice(0, found[0]) + rules.replace_with;
    text = text.slice(found[1]);
    found = find(text);
  }
  return said + text;
}

/** @returns {Verdict} */
const refuse = (message) => ({ tag: 'refuse', val: { code: 'word', message } });

// Number of characters before the last `held` bytes of the text.
function outOf(text, held) {
  const bytes = new TextEncoder().encode(text);
  return new TextDecoder().decode(bytes.subarray(0, Math.max(0, bytes.length - held))).length;
}

// One answer being read.
class Session {
  constructor(mends) {
    this.mends = mends;
    // Text since all of it went out.
    this.text = '';
  }

  // The verdict on the text, of which the first `out` characters went out.
  /** @returns {Verdict} */
  verdict(out) {
    const found = find(this.text);
    if (found === undefined) return { tag: 'pass' };
    if (this.mends && found[0] >= out) return { tag: 'replace', val: mended(this.text.slice(out)) };
    return refuse('the answer has a word that may not be used');
  }

  /** @returns {Verdict} */
  feed(part, text, held) {
    const out = outOf(this.text, held);
    this.text += text;
    const verdict = this.verdict(out);
    // The end may belong to another word; once it does not, the text is mended as a whole.
    if (verdict.tag !== 'refuse' && mayGoOn(this.text)) return { tag: 'undecided' };
    this.text = '';
    return verdict;
  }

  close(reason, held) {
    return this.verdict(outOf(this.text, held));
  }
}

// Texts of a conversation, or the prompt.
function textOf(messages) {
  if (typeof messages === 'string') return messages;
  const contents = Array.isArray(messages) ? messages.map((message) => message?.content) : [];
  const parts = contents.flatMap((content) => (Array.isArray(content) ? content.map((part) => part?.text) : [content]));
  return parts.filter((text) => typeof text === 'string').join('\n');
}

/** @type {import('mortise:plugin/guardrail@0.3.0').Guardrail} */
export const guardrail = {
  Session,

  describe() {
    return { input: true, content: true, reasoning: false, callArguments: false };
  },

  checkInput(context, messages) {
    const found = find(textOf(JSON.parse(messages)));
    return found === undefined ? { tag: 'pass' } : refuse('the conversation has a word that may not be used');
  },

  open(context) {
    // Only what waits for the verdict can be mended.
    return new Session(context.holds && rules.replace_with !== undefined);
  },
};
