// Settings and messages as a request, and its stream as a message.

import { chat } from "./api.js";
import { partOf } from "./attachments.js";
import { searched } from "./responses.js";
import { citationOf, searchOf } from "./sources.js";

/** Numbers of the settings: the field and its bounds. */
const NUMBERS = {
  temperature: [0, 2],
  top_p: [0, 1],
  max_tokens: [1, 1e6],
  seed: [-(2 ** 53), 2 ** 53],
  top_k: [0, 1e6],
  min_p: [0, 1],
  frequency_penalty: [-2, 2],
  presence_penalty: [-2, 2],
  repetition_penalty: [0.01, 4],
};
const WHOLE = ["max_tokens", "seed", "top_k"];
/** Milliseconds for which chunks are read in one go. */
const SMOOTH = 8;
/** Alternatives of each token that are asked for. */
const ALTERNATIVES = 5;

function numberOf(name, typed) {
  const value = Number(typed);
  const [least, most] = NUMBERS[name];
  if (!Number.isFinite(value) || value < least || value > most) throw new Error(`a number from ${least} to ${most}`);
  if (WHOLE.includes(name) && !Number.isInteger(value)) throw new Error("a whole number");
  return value;
}

function json(typed) {
  try {
    return JSON.parse(typed);
  } catch (error) {
    throw new Error(`JSON, which this is not: ${error.message}`);
  }
}

/** Tools as they are pasted: OpenAI's list, a list of functions, or one of them. */
function toolsOf(typed) {
  const value = json(typed);
  return [value].flat().map((tool) => {
    const declared = tool?.type === "function" && tool.function ? tool : { type: "function", function: tool };
    if (typeof declared.function?.name !== "string") throw new Error("a list of tools, each with a `name`");
    return declared;
  });
}

/** A schema as it is pasted: by itself, or in OpenAI's wrapping. */
function formatOf(typed) {
  const value = json(typed);
  if (value?.type === "json_schema" && value.json_schema) return value;
  if (typeof value !== "object" || value === null) throw new Error("a JSON Schema");
  return { type: "json_schema", json_schema: { name: "answer", schema: value, strict: true } };
}

const READERS = {
  stop: (typed) => ({ stop: typed.split("\n").filter(Boolean) }),
  effort: (typed) => ({ reasoning_effort: typed }),
  tools: (typed) => ({ tools: toolsOf(typed) }),
  server_tools: (typed) => ({ server_tools: typed.split(",").map((name) => name.trim()).filter(Boolean) }),
  schema: (typed) => ({ response_format: formatOf(typed) }),
};
for (const name of Object.keys(NUMBERS)) READERS[name] = (typed) => ({ [name]: numberOf(name, typed) });

/** Fields of a request, and what is wrong with the settings by their names. */
export function fieldsOf(settings) {
  const [fields, faults] = [{}, {}];
  for (const [name, read] of Object.entries(READERS)) {
    if (!settings[name]?.trim()) continue;
    try {
      Object.assign(fields, read(settings[name]));
    } catch (error) {
      faults[name] = `It has to be ${error.message}.`;
    }
  }
  if (settings.logprobs) Object.assign(fields, { logprobs: true, top_logprobs: ALTERNATIVES });
  return { fields, faults };
}

const wireCall = ({ id, name, arguments: text }) => ({ id, type: "function", function: { name, arguments: text } });

function wireMessage(message) {
  const { role, content } = message;
  if (role === "user") return { role, content: message.files.length ? [...(content ? [{ type: "text", text: content }] : []), ...message.files.map(partOf)] : content };
  if (role === "tool") return { role, content, tool_call_id: message.call };
  return {
    role,
    content: content || null,
    ...(message.reasoning && { reasoning_content: message.reasoning }),
    ...(message.calls.length && { tool_calls: message.calls.map(wireCall) }),
  };
}

/** Whether the conversation can be sent with this message: an answer that failed has nothing to say. */
const says = (message) => message.role !== "assistant" || message.content || message.calls.length > 0;

/** The request that asks for the next message of a thread. */
export function requestOf({ model, messages }, settings) {
  const { fields, faults } = fieldsOf(settings);
  const [fault] = Object.entries(faults);
  if (fault) throw new Error(`“${fault[0]}” cannot be sent. ${fault[1]}`);
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  return { model, messages: [...system, ...messages.filter(says).map(wireMessage)], ...fields };
}

/** What an answer searches in, beside its request: collections, and the messages with their searches. */
export const searchIn = (stores, messages) => (stores.length ? { stores, messages: messages.filter(says) } : undefined);

/** The same for the prompt by which an answer was given: with what its own searches had found by then. */
export function searchBehind(stores, messages, answer) {
  const search = searchIn(stores, messages);
  if (search && answer?.searches.length) search.messages.push({ ...answer, content: "", calls: [] });
  return search;
}

/** An empty answer, with what it is asked with. */
export const newAnswer = (model, settings) => ({
  role: "assistant",
  content: "",
  reasoning: "",
  calls: [],
  ran: [],
  searches: [],
  citations: [],
  tokens: settings.logprobs ? [] : undefined,
  finish: "",
  error: "",
  schema: settings.schema.trim(),
  asked: { model, settings: { ...settings } },
});

/** Fill an answer from a stream, which searches where `search` is given; `changed` is called after each chunk. */
export async function fill(answer, { request, search }, signal, changed) {
  const begun = performance.now();
  let turn = begun;
  try {
    const body = { ...request, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of search ? searched(request, search, signal) : chat(body, signal)) {
      answer.first ??= performance.now() - begun;
      add(answer, chunk);
      changed();
      // What has come already is read without a pause, and the page would wait for all of it.
      if (performance.now() - turn < SMOOTH) continue;
      await new Promise((resolve) => setTimeout(resolve));
      turn = performance.now();
    }
  } catch (error) {
    if (error.name === "AbortError") answer.finish = "stopped";
    else answer.error = error.param ? `${error.param}: ${error.message}` : error.message;
  }
  answer.total = performance.now() - begun;
}

function add(answer, { choices, usage }) {
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    answer.usage = { prompt: usage.prompt_tokens, completion: usage.completion_tokens, cached };
  }
  const [choice] = choices;
  if (!choice) return;
  const { delta } = choice;
  const thought = delta.reasoning_content ?? delta.reasoning;
  answer.content += delta.content ?? "";
  answer.reasoning += thought ?? "";
  for (const call of delta.tool_calls ?? []) addCall(answer.calls, call);
  answer.ran.push(...(delta.server_tool_calls ?? []));
  answer.searches.push(...(delta.searches ?? []).map(searchOf));
  answer.citations.push(...(delta.citations ?? []).map(citationOf));
  for (const { token, logprob, top_logprobs: top } of choice.logprobs?.content ?? []) {
    answer.tokens?.push({ token, logprob, top, reasoning: thought !== undefined });
  }
  answer.finish = choice.finish_reason ?? answer.finish;
}

function addCall(calls, { index, id, function: part }) {
  calls[index] ??= { id: "", name: "", arguments: "" };
  const call = calls[index];
  call.id = id ?? call.id;
  call.name += part?.name ?? "";
  call.arguments += part?.arguments ?? "";
}
