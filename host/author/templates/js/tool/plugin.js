// A tool: it counts what a text has, since language models are bad at counting. The model calls
// `count_text` with a text; the settings may bound the text: {"max_bytes": 1000}.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

const parameters = {
  type: 'object',
  properties: { text: { type: 'string', description: 'The text to count.' } },
  required: ['text'],
  additionalProperties: false,
};

// The longest text that is counted.
const limits = { max_bytes: 100_000 };

export const lifecycle = {
  prepare() {
    Object.assign(limits, JSON.parse(settings()));
  },
};

/** @type {import('mortise:plugin/tool@0.3.0').Tool} */
export const tool = {
  describe() {
    const description = 'Counts the characters, words and lines of a text.';
    return [{ name: 'count_text', description, parameters: JSON.stringify(parameters) }];
  },

  call(name, args, context) {
    // The host has checked that the arguments follow the schema.
    const { text } = JSON.parse(args);
    if (new TextEncoder().encode(text).length > limits.max_bytes) {
      // The model reads this, and may try again with less.
      throw { tag: 'refused', val: `the text has more than ${limits.max_bytes} bytes` };
    }
    const lines = text.split('\n');
    return JSON.stringify({
      characters: [...text].length,
      words: text.split(/\s+/).filter(Boolean).length,
      lines: lines.at(-1) === '' ? lines.length - 1 : lines.length,
    });
  },
};
