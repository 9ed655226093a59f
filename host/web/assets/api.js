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
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(new URL(path, document.baseURI), {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    signal,
    credentials: "omit",
    redirect: "error",
  });
  if (response.ok) return response;
  const told = await response.json().catch(() => undefined);
  throw new Refused(response.status, told?.error);
}

/** The models that the caller may use. */
export async function models() {
  const list = await (await send("v1/models")).json();
  return list.data.map((model) => ({ id: String(model.id), loaded: model.loaded !== false }));
}

/** The version of the server. */
export async function version() {
  return String((await (await send("version")).json()).version);
}

/** The prompt of a chat request, which is not answered. */
export async function rendered(body) {
  return (await send("v1/chat/completions/render", body)).json();
}

/** Tokens of a text or of a conversation, each with its text. */
export async function tokenized(body) {
  return (await send("tokenize", { ...body, return_token_strs: true })).json();
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
