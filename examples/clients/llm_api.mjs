// The API below /api/v1/llm from JavaScript, with nothing but what Node has.
//
//     node llm_api.mjs [URL [MODEL [EMBEDDING_MODEL [ADMIN_KEY [COLLECTION]]]]]
//
// A collection is a vector store of /v1/vector_stores, by its name or its id.

/** An error as the API tells it. */
class LlmError extends Error {
  constructor(status, error) {
    super(`${status} ${error.code}: ${error.message}`);
    Object.assign(this, { status, code: error.code, details: error.details ?? {} });
  }
}

/** A client. `key` is a key of the API, `adminKey` that of the admin side. */
class Llm {
  constructor(url, { key, adminKey } = {}) {
    this.url = `${url.replace(/\/$/, "")}/api/v1/llm`;
    this.headers = {};
    if (key) this.headers.authorization = `Bearer ${key}`;
    if (adminKey) this.headers["x-admin-token"] = adminKey;
  }

  async open(path, body) {
    const request = { headers: { ...this.headers } };
    if (body !== undefined) {
      Object.assign(request, { method: "POST", body: JSON.stringify(body) });
      request.headers["content-type"] = "application/json";
    }
    const answer = await fetch(`${this.url}/${path}`, request);
    if (!answer.ok) throw new LlmError(answer.status, (await answer.json()).error);
    return answer;
  }

  async get(path) {
    return (await this.open(path)).json();
  }

  async post(path, body) {
    return (await this.open(path, body)).json();
  }

  /** Pieces of the text, and at last the object with the figures. */
  async *stream(path, body) {
    const answer = await this.open(path, { ...body, stream: true });
    let rest = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      const events = (rest + text).split("\n\n");
      rest = events.pop();
      for (const event of events.filter((event) => event.startsWith("data: "))) {
        const object = JSON.parse(event.slice(6));
        if (object.error) throw new LlmError(answer.status, object.error);
        yield object;
      }
    }
  }
}

const [url = "http://127.0.0.1:8080", model = "mortise-demo", embeddingModel, adminKey, collection] =
  process.argv.slice(2);
const llm = new Llm(url, { adminKey });
const answer = await llm.post("inference", {
  prompt: "What is ThemisDB?",
  model,
  max_tokens: 100,
  temperature: 0.7,
  top_p: 0.9,
  top_k: 40,
  stop_sequences: ["\n\n", "END"],
});
console.log(answer.text, answer.tokens_generated, answer.finish_reason);
const story = { prompt: "Write a story about…", model, max_tokens: 64 };
for await (const event of llm.stream("inference", story)) {
  process.stdout.write(event.token ?? `[${event.tokens_generated} tokens]\n`);
}
if (embeddingModel) {
  const text = "Sample text for embedding generation";
  const made = await llm.post("embed", { text, model: embeddingModel, normalize: true });
  console.log("dimension", made.dimension, made.embedding.slice(0, 3));
}
if (collection) {
  const query = "Contract provisions in clause 3.4";
  const answered = await llm.post("rag", { query, collection, top_k: 5, similarity_threshold: -1, model });
  console.log(answered.text, "from", answered.sources.map((source) => source.filename));
}
for (const row of (await llm.get("models")).models) {
  console.log(row.model_id, row.status, row.size_bytes);
}
console.log((await llm.get(`models/${model}`)).architecture);
try {
  await llm.post("inference", { prompt: "p", model: "invalid-model" });
} catch (error) {
  console.log(error.message, error.details.available_models);
}
console.log("requests", (await llm.get("stats")).total_requests);
console.log("prefix hits", (await llm.get("cache/stats")).prefix_cache.hits);
console.log("workers", (await llm.get("workers")).workers.length);
console.log((await llm.get("health")).status);
if (adminKey) {
  console.log((await llm.post("models/unload", { model_id: model })).status);
  console.log((await llm.post("models/load", { model_id: model })).status);
  console.log("cleared", (await llm.post("cache/clear", { cache_type: "prefix" })).cleared);
}
