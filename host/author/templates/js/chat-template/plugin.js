// A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it; tools, their calls and
// results as the models of Hermes and Qwen read them. Rules from the settings, {"rules": "…"}, stand before
// every conversation.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

// What the operator wants said first, if anything.
let rules;

export const lifecycle = {
  prepare() {
    rules = JSON.parse(settings()).rules;
  },
};

// Only markers are special: whatever a user writes stays plain text, and never becomes a control token.
/** @typedef {import('mortise:plugin/chat-template@0.3.0').Segment} Segment */
/** @returns {Segment} */
const plain = (val) => ({ tag: 'plain', val });
/** @returns {Segment} */
const special = (val) => ({ tag: 'special', val });

// JSON with a blank behind each `,` and `:`, as models saw it when they were trained.
const dumped = (value) =>
  JSON.stringify(value).replaceAll(/"(?:[^"\\]|\\.)*"|[,:]/g, (found) =>
    found.length === 1 ? `${found} ` : found);

// The text of a message. One with nothing but calls has none.
function textOf(messages, index) {
  const { content, tool_calls: calls } = messages[index];
  if (content == null && calls?.length > 0) return '';
  if (Array.isArray(content) && content.every((part) => typeof part.text === 'string')) {
    return content.map((part) => part.text).join('');
  }
  if (typeof content !== 'string') {
    throw { tag: 'invalid', val: `messages[${index}].content must be text for this template` };
  }
  return content;
}

// The first turn: what the operator and the caller want said first, and the tools.
function* system(texts, tools) {
  if (texts.length === 0 && tools.length === 0) return;
  yield* [special('<|im_start|>'), plain(`system\n${texts.join('\n\n')}`)];
  if (tools.length > 0) {
    yield plain(
      `${texts.length > 0 ? '\n\n' : ''}# Tools\n\nYou may call one or more functions to assist with the ` +
        'user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' +
        `${tools.map((tool) => `\n${dumped(tool)}`).join('')}\n</tools>\n\nFor each function call, return a ` +
        'json object with function name and arguments within ',
    );
    yield* [special('<tool_call></tool_call>'), plain(' XML tags:\n'), special('<tool_call>')];
    yield plain('\n{"name": <function-name>, "arguments": <args-json-object>}\n');
    yield special('</tool_call>');
  }
  yield* [special('<|im_end|>'), plain('\n')];
}

// One message. Results of tools that follow one another make one turn.
function* rendered(messages, index, thoughts, open) {
  const message = messages[index];
  const role = message.role ?? 'user';
  const content = textOf(messages, index);
  if (role === 'tool') {
    if (messages[index - 1]?.role !== 'tool') yield* [special('<|im_start|>'), plain('user')];
    yield* [plain('\n'), special('<tool_response>'), plain(`\n${content}\n`), special('</tool_response>')];
    if (messages[index + 1]?.role !== 'tool') yield* [special('<|im_end|>'), plain('\n')];
    return;
  }
  yield* [special('<|im_start|>'), plain(`${role}\n`)];
  const reasoning = message.reasoning_content;
  if (thoughts && typeof reasoning === 'string') {
    yield* [special('<think>'), plain(`\n${reasoning.replaceAll(/^\n+|\n+$/g, '')}\n`)];
    yield* [special('</think>'), plain('\n\n')];
  }
  yield plain(content);
  for (const [number, call] of (message.tool_calls ?? []).entries()) {
    const { name, arguments: args } = call.function;
    const text = typeof args === 'string' ? args : dumped(args);
    yield* [plain(number > 0 || content !== '' ? '\n' : ''), special('<tool_call>')];
    yield* [plain(`\n{"name": ${dumped(name)}, "arguments": ${text}}\n`), special('</tool_call>')];
  }
  if (!open) yield* [special('<|im_end|>'), plain('\n')];
}

/** @type {import('mortise:plugin/chat-template@0.3.0').ChatTemplate} */
export const chatTemplate = {
  render(input) {
    const messages = JSON.parse(input.messages);
    const tools = input.tools == null ? [] : JSON.parse(input.tools);
    const led = messages[0]?.role === 'system';
    const texts = [rules, led ? textOf(messages, 0) : ''].filter(Boolean);
    const segments = [...system(texts, tools)];
    // What the model thought before the last question is not shown to it again.
    const question = messages.findLastIndex((message) => message.role === 'user');
    for (let index = Number(led); index < messages.length; index++) {
      const open = input.continueFinalMessage && index + 1 === messages.length;
      segments.push(...rendered(messages, index, index > question, open));
    }
    if (input.addGenerationPrompt) segments.push(special('<|im_start|>'), plain('assistant\n'));
    return { segments, stop: [], opensReasoning: false };
  },
};
