// Requests to the admin side that this page came from, and to no other.

const KEY = "mortise.admin.key";

/** The admin key: it lives as long as this tab. */
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

/** Called when the server does not take the key. */
export const refusal = { keyless: () => {} };

async function send(method, path, { body, bytes, signal, ...more } = {}) {
  const headers = { "X-Admin-Token": key.get(), ...more.headers };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (bytes !== undefined) headers["Content-Type"] = "application/octet-stream";
  const response = await fetch(new URL(path, document.baseURI), {
    method,
    headers,
    body: body === undefined ? bytes : JSON.stringify(body),
    signal,
    credentials: "omit",
    redirect: "error",
    cache: "no-store",
  });
  if (response.ok) return response;
  const told = await response.json().catch(() => undefined);
  const refused = new Refused(response.status, told?.error);
  if (["missing_admin_key", "forbidden"].includes(refused.code)) refusal.keyless(refused);
  throw refused;
}

const json = async (...request) => (await send(...request)).json();

export const get = (path) => json("GET", path);
export const post = (path, body) => json("POST", path, { body });
export const put = (path, body) => json("PUT", path, { body });
export const remove = (path) => json("DELETE", path);

/** A change, with what the server says of keeping it. */
export async function change(method, path, body) {
  const response = await send(method, path, { body });
  return { value: await response.json(), persisted: response.headers.get("X-Persisted") };
}

/** Send a file as it is. */
export const upload = (method, path, bytes, headers = {}) => json(method, path, { bytes, headers });

/** A name as part of a path. */
export const part = encodeURIComponent;

/** Events of the server, each with its name, until the stream ends or is aborted. */
export async function* events(topics, signal) {
  const response = await send("GET", `v1/admin/events?topics=${topics.join(",")}`, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const of = (field) => lines.filter((line) => line.startsWith(`${field}: `)).map((line) => line.slice(field.length + 2));
      const data = of("data").join("\n");
      if (data) yield { name: of("event")[0] ?? "message", data: JSON.parse(data) };
    }
  }
}
