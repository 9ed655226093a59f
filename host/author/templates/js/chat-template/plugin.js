// A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it. Rules from the
// settings, {"rules": "…"}, stand before every conversation.

import { get as settings } from 'mortise:plugin/settings@0.2.0';

// What the operator wants said first, if anything.
let rules;

export const lifecycle = {
  prepare() {
    rules = JSON.parse(settings()).rules;
  },
};

// One turn. Only the markers are special: whatever a user writes stays plain text, and never becomes
// a control token.
function turn(role, content) {
  return [
    { tag: 'special', val: '<|im_start|>' },
    { tag: 'plain', val: `${role}\n${content}` },
    { tag: 'special', val: '<|im_end|>' },
    { tag: 'plain', val: '\n' },
  ];
}

export const chatTemplate = {
  render(input) {
    const segments = rules === undefined ? [] : turn('system', rules);
    for (const [index, message] of JSON.parse(input.messages).entries()) {
      if (typeof message.content !== 'string') {
        const val = `messages[${index}].content must be text for this template`;
        throw { tag: 'invalid', val };
      }
      segments.push(...turn(message.role ?? 'user', message.content));
    }
    if (input.addGenerationPrompt) {
      segments.push({ tag: 'special', val: '<|im_start|>' }, { tag: 'plain', val: 'assistant\n' });
    }
    return { segments, stop: [], opensReasoning: false };
  },
};
