// Conversations, kept in this browser. What is read, from the browser's storage or from a file, is rebuilt field by
// field: it may be anything.

import { citationOf, searchOf } from "./sources.js";

const PREFIX = "mortise.chat.";
/** Conversations that are kept; the oldest give way. */
const MOST = 200;
/** Bytes of a file that is imported. */
const FILE_BYTES = 8 * 1024 * 1024;
const MESSAGES = 2000;
/** Letters of a conversation's files, as data URLs, that are kept in the browser. */
const FILES_KEPT = 512 * 1024;

const text = (value) => (typeof value === "string" ? value : "");
const list = (value, most = MESSAGES) => (Array.isArray(value) ? value.slice(0, most) : []);
const number = (value) => (Number.isFinite(value) ? value : undefined);

/** Settings as they are typed. An empty one is not sent. */
export const SETTINGS = [
  "system", "temperature", "top_p", "max_tokens", "seed", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop", "effort",
  "tools", "server_tools", "schema", "stores",
];

function settingsOf(value) {
  const settings = { logprobs: value?.logprobs === true };
  for (const name of SETTINGS) settings[name] = text(value?.[name]);
  return settings;
}

/** What an answer was asked with. */
const askOf = (value) => ({ model: text(value?.model), settings: settingsOf(value?.settings) });

const callOf = (call) => ({
  id: text(call?.id),
  name: text(call?.name),
  arguments: text(call?.arguments),
  ...(typeof call?.outcome === "string" && { outcome: call.outcome, output: text(call.output) }),
});

/** A file of a message. What is not a data URL is none that was attached here. */
const fileOf = (value) => ({
  name: text(value?.name).slice(0, 255),
  type: text(value?.type),
  data: text(value?.data).startsWith("data:") ? value.data : "",
});

/** A message. Answers name what they were asked with by its place in `asks`; those of earlier versions name nothing. */
function messageOf(value, asks) {
  const content = text(value?.content);
  if (value?.role === "user") return { role: "user", content, files: list(value.files, 16).map(fileOf).filter(({ type }) => /^(image|audio)\//.test(type)) };
  if (value?.role === "tool") return { role: "tool", content, call: text(value.call) };
  if (value?.role !== "assistant") return undefined;
  const usage = value.usage && {
    prompt: number(value.usage.prompt) ?? 0,
    completion: number(value.usage.completion) ?? 0,
    cached: number(value.usage.cached) ?? 0,
  };
  return {
    role: "assistant",
    content,
    reasoning: text(value.reasoning),
    calls: list(value.calls, 128).map(callOf),
    ran: list(value.ran, 128).map(callOf),
    searches: list(value.searches, 128).map(searchOf),
    citations: list(value.citations, 1000).map(citationOf),
    finish: text(value.finish),
    error: text(value.error),
    schema: text(value.schema),
    usage,
    first: number(value.first),
    total: number(value.total),
    asked: Number.isInteger(value.asked) ? asks[value.asked] : undefined,
  };
}

const threadOf = (value, asks) => ({
  model: text(value?.model),
  messages: list(value?.messages).map((message) => messageOf(message, asks)).filter(Boolean),
});

/** An id that no other conversation has. `crypto.randomUUID` is missing over plain http from another machine. */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function chatOf(value) {
  const asks = list(value?.asks).map(askOf);
  const threads = list(value?.threads, 2).map((thread) => threadOf(thread, asks));
  if (!threads.length) return undefined;
  return {
    id: newId(),
    title: text(value.title).slice(0, 80),
    changed: number(value.changed) ?? Date.now(),
    settings: settingsOf(value.settings),
    threads,
    // A second column that was closed.
    aside: value.aside ? threadOf(value.aside, asks) : undefined,
  };
}

/** A new conversation, with the settings of another. */
export function newChat(model, settings) {
  return chatOf({ threads: [{ model }], settings });
}

/** All conversations, the last changed first. */
export function allChats() {
  const chats = [];
  for (const name of Object.keys(localStorage)) {
    if (!name.startsWith(PREFIX)) continue;
    const chat = parsed(localStorage.getItem(name));
    if (chat) chats.push({ ...chat, id: name.slice(PREFIX.length) });
  }
  return chats.sort((one, other) => other.changed - one.changed);
}

function parsed(json) {
  try {
    return chatOf(JSON.parse(json));
  } catch {
    return undefined;
  }
}

/** What is kept of a conversation: probabilities of tokens are too large, and so are files beyond a bound. */
function kept({ title, changed, settings, threads, aside }, most = Infinity) {
  const letters = (message) => (message.files ?? []).reduce((all, { data }) => all + data.length, 0);
  const all = [...threads, aside].flatMap((thread) => thread?.messages ?? []).reduce((sum, message) => sum + letters(message), 0);
  const without = (file) => ({ ...file, data: "" });
  // Many answers are asked with the same settings, which are kept once.
  const places = new Map();
  const placeOf = (asked) => {
    const json = JSON.stringify(asked);
    if (!places.has(json)) places.set(json, places.size);
    return places.get(json);
  };
  const messageKept = ({ tokens, asked, ...rest }) => ({
    ...rest,
    ...(rest.files?.length && all > most && { files: rest.files.map(without) }),
    ...(asked && { asked: placeOf(asked) }),
  });
  const threadKept = ({ model, messages }) => ({ model, messages: messages.map(messageKept) });
  const both = { threads: threads.map(threadKept), ...(aside && { aside: threadKept(aside) }) };
  return { title, changed, settings, ...both, asks: [...places.keys()].map((json) => JSON.parse(json)) };
}

/** Keep a conversation that has changed. */
export function keep(chat) {
  chat.changed = Date.now();
  return put(chat);
}

/** Keep a conversation as it is. Where the browser has no room, the oldest others give way. */
export function put(chat) {
  const json = JSON.stringify(kept(chat, FILES_KEPT));
  let others;
  const read = () => (others ??= allChats().filter((other) => other.id !== chat.id));
  const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX) && name !== PREFIX + chat.id);
  if (names.length >= MOST) read().splice(MOST - 1).forEach((other) => forget(other.id));
  for (;;) {
    try {
      localStorage.setItem(PREFIX + chat.id, json);
      return true;
    } catch {
      const oldest = read().pop();
      if (!oldest) return false;
      forget(oldest.id);
    }
  }
}

/** Remove a conversation. */
export const forget = (id) => localStorage.removeItem(PREFIX + id);

/** Conversations as the text of a file. */
export const exported = (chats) => JSON.stringify({ mortise: "conversations", version: 1, chats: chats.map((chat) => kept(chat)) }, null, 2);

/** Conversations of a file that `exported` made. */
export async function imported(file) {
  if (file.size > FILE_BYTES) throw new Error(`the file has more than ${FILE_BYTES / 1024 / 1024} MiB`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error("the file is not JSON");
  }
  const chats = list(value?.chats, MOST).map(chatOf).filter(Boolean);
  if (value?.mortise !== "conversations" || !chats.length) throw new Error("the file has no conversations of mortise");
  return chats;
}
