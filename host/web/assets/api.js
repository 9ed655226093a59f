// Requests to the server that this page came from, and to no other.

const KEY = "mortise.key";

/** Key of the caller: it lives as long as this tab. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** A refusal: the server's own words, with the code and the field that it names. */
export class Refused extends Error {
  constructor(status, error) {
    const { message, code, param } = error ?? {};
    super(message ?? `the server answered with status ${status}`);
    Object.assign(this, { status, code, param });
  }
}

async function send(path, body, signal) {
  const headers = {};
  const form = body instanceof FormData;
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body && !form) headers["Content-Type"] = "application/json";
  const response = await fetch(new URL(path, document.baseURI), {
    method: body ? "POST" : "GET",
    headers,
    body: body && !form ? JSON.stringify(body) : body,
    signal,
    credentials: "omit",
    redirect: "error",
  });
  if (response.ok) return response;
  const told = await response.json().catch(() => undefined);
  throw new Refused(response.status, told?.error);
}

/** True if a model answers conversations. What one that is not loaded can do is not known yet. */
const generates = ({ capabilities }) => !Array.isArray(capabilities) || capabilities.includes("generate");

/** Kinds of content that a model takes; `undefined` if that is not known. */
const modalitiesOf = ({ features }) => (Array.isArray(features?.modalities) ? features.modalities.map(String) : undefined);

/** The models that the caller may use and that generate. */
export async function models() {
  const list = await (await send("v1/models")).json();
  return list.data.filter(generates).map((model) => ({ id: String(model.id), loaded: model.loaded !== false, modalities: modalitiesOf(model) }));
}

/** The version of the server. */
export async function version() {
  return String((await (await send("version")).json()).version);
}

/** The prompt of a chat request, which is not answered. */
export async function rendered(body) {
  return (await send("v1/chat/completions/render", body)).json();
}

/** The prompt of a response that searches, which is not answered: each token with its text. */
export async function renderedResponse(body) {
  return (await send("v1/responses/render", body)).json();
}

/** Tokens of a text or of a conversation, each with its text. */
export async function tokenized(body) {
  return (await send("tokenize", { ...body, return_token_strs: true })).json();
}

/** Collections of the caller, the newest first. */
export async function vectorStores() {
  const list = await (await send("v1/vector_stores?limit=100")).json();
  return list.data.map(({ id, name, file_counts: files }) => ({ id: String(id), name: String(name ?? ""), files: Number(files?.completed ?? 0) }));
}

/** A new collection. */
export const makeStore = async (body) => (await send("v1/vector_stores", body)).json();

/** A document as a file of the caller. */
export async function sendFile(file) {
  const form = new FormData();
  form.append("purpose", "user_data");
  form.append("file", file, file.name);
  return (await send("v1/files", form)).json();
}

/** Attach a file to a collection; it is ingested then. */
export const attach = async (store, id) => (await send(`v1/vector_stores/${encodeURIComponent(store)}/files`, { file_id: id })).json();

/** How far a file is ingested. */
export const fileState = async (store, id) => (await send(`v1/vector_stores/${encodeURIComponent(store)}/files/${encodeURIComponent(id)}`)).json();

/** Events of a streamed response, up to the one that ends it. */
export async function* respond(body, signal) {
  const response = await send("v1/responses", body, signal);
  let ended = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") continue;
    const event = JSON.parse(data);
    const { error } = event.response ?? event;
    if (["error", "response.failed"].includes(event.type)) throw new Refused(200, error ?? event);
    ended ||= ["response.completed", "response.incomplete"].includes(event.type);
    yield event;
  }
  if (!ended) throw new Error("the answer broke off");
}

/** Chunks of a streamed answer. A stream that breaks off is an error: the last event is missing. */
export async function* chat(body, signal) {
  const response = await send("v1/chat/completions", body, signal);
  let done = false;
  for await (const data of events(response.body)) {
    // The body is read to its end: an answer that is left before counts as cancelled.
    done ||= data === "[DONE]";
    if (done) continue;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refused(chunk.error.status ?? 200, chunk.error);
    yield chunk;
  }
  if (!done) throw new Error("the answer broke off");
}

/** The data of server-sent events, whose pieces may end anywhere. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data: "));
        if (lines.length) yield lines.map((line) => line.slice(6)).join("\n");
      }
    }
  } finally {
    // Whoever leaves early lets the server know: it then frees what the answer held.
    reader.cancel().catch(() => {});
  }
}
