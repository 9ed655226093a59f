// Each method of the stock client that has a route here, called as the client's own tests of resources call them: the
// result, the raw response, and both together. Those tests are in the client's repository and not in its package.
// `MORTISE_BASE_URL` says where.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const model = "mortise-demo";
const client = new OpenAI({ baseURL: process.env.MORTISE_BASE_URL, apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];
const items = [{ type: "message", role: "user", content: "Hello" }];
const short = { model, input: "Hello", max_output_tokens: 4 };
const line = (number, max_tokens) => {
  const body = { model, messages, max_tokens };
  return `${JSON.stringify({ custom_id: `${number}`, method: "POST", url: "/v1/chat/completions", body })}\n`;
};
const upload = (lines = [line(0, 4)]) => ({ file: new File(lines, "in.jsonl"), purpose: "batch" });
const ofFile = (id) => ({ input_file_id: id, endpoint: "/v1/chat/completions", completion_window: "24h" });
const metadata = { metadata: { a: "b" } };
const { chat, completions, files, models, responses, conversations, batches } = client;

// Things that methods need, made anew for each call.
const id = async (made) => (await made).id;
const completion = () => id(chat.completions.create({ model, messages, store: true, max_tokens: 4 }));
const response = () => id(responses.create(short));
const background = () => id(responses.create({ ...short, background: true }));
const conversation = () => id(conversations.create({ items }));
const file = () => id(files.create(upload()));
const batch = async () => id(batches.create(ofFile(await file())));
// One that takes a while, and can be cancelled.
const long = async () => {
  const lines = Array.from({ length: 200 }, (_, number) => line(number, 200));
  return id(batches.create(ofFile(await id(files.create(upload(lines))))));
};
const nothing = () => undefined;

// Name, what it needs, the call, and the `object` of its result or the class of its page.
const METHODS = [
  ["chat.completions.create", nothing, () => chat.completions.create({ model, messages, max_tokens: 4 }), "chat.completion"],
  ["chat.completions.retrieve", completion, (id) => chat.completions.retrieve(id), "chat.completion"],
  ["chat.completions.update", completion, (id) => chat.completions.update(id, metadata), "chat.completion"],
  ["chat.completions.list", nothing, () => chat.completions.list(), "CursorPage"],
  ["chat.completions.delete", completion, (id) => chat.completions.delete(id), "chat.completion.deleted"],
  ["chat.completions.messages.list", completion, (id) => chat.completions.messages.list(id), "CursorPage"],
  ["completions.create", nothing, () => completions.create({ model, prompt: "Hello", max_tokens: 4 }), "text_completion"],
  ["files.create", nothing, () => files.create(upload()), "file"],
  ["files.retrieve", file, (id) => files.retrieve(id), "file"],
  ["files.list", nothing, () => files.list(), "CursorPage"],
  ["files.delete", file, (id) => files.delete(id), "file"],
  ["models.retrieve", nothing, () => models.retrieve(model), "model"],
  ["models.list", nothing, () => models.list(), "Page"],
  ["responses.create", nothing, () => responses.create(short), "response"],
  ["responses.retrieve", response, (id) => responses.retrieve(id), "response"],
  ["responses.cancel", background, (id) => responses.cancel(id), "response"],
  ["responses.compact", nothing, () => responses.compact({ model, input: "Hello" }), "response.compaction"],
  ["responses.inputItems.list", response, (id) => responses.inputItems.list(id), "CursorPage"],
  ["responses.inputTokens.count", nothing, () => responses.inputTokens.count({ model, input: "Hello" }), "response.input_tokens"],
  ["conversations.create", nothing, () => conversations.create(), "conversation"],
  ["conversations.retrieve", conversation, (id) => conversations.retrieve(id), "conversation"],
  ["conversations.update", conversation, (id) => conversations.update(id, metadata), "conversation"],
  ["conversations.delete", conversation, (id) => conversations.delete(id), "conversation.deleted"],
  ["conversations.items.create", conversation, (id) => conversations.items.create(id, { items }), "list"],
  ["conversations.items.list", conversation, (id) => conversations.items.list(id), "ConversationCursorPage"],
  ["batches.create", file, (id) => batches.create(ofFile(id)), "batch"],
  ["batches.retrieve", batch, (id) => batches.retrieve(id), "batch"],
  ["batches.cancel", long, (id) => batches.cancel(id), "batch"],
  ["batches.list", nothing, () => batches.list(), "CursorPage"],
];

for (const [name, need, call, object] of METHODS) {
  test(name, async () => {
    const raw = await call(await need()).asResponse();
    assert.ok(raw instanceof Response);
    await raw.text();
    const result = await call(await need());
    const both = await call(await need()).withResponse();
    assert.ok(both.response instanceof Response);
    for (const one of [result, both.data]) {
      const page = one.constructor.name.endsWith("Page");
      assert.equal(page ? one.constructor.name : one.object, object);
    }
  });
}

test("content of a file", async () => {
  const content = await files.content(await file());
  assert.equal(await content.text(), line(0, 4));
});

test("items of a conversation, one by one", async () => {
  const kept = await conversation();
  const listed = await conversations.items.list(kept);
  const [item] = listed.data;
  const found = await conversations.items.retrieve(item.id, { conversation_id: kept });
  assert.deepEqual(found, item);
  assert.equal((await conversations.items.delete(item.id, { conversation_id: kept })).id, kept);
});

test("options of a request are taken", async () => {
  const options = { path: "/unknown/path" };
  for (const call of [
    () => chat.completions.list({}, options),
    () => files.list({}, options),
    () => models.list(options),
    () => responses.retrieve("a", {}, options),
    () => conversations.create({}, options),
    () => batches.list({}, options),
  ]) {
    await assert.rejects(async () => await call(), OpenAI.NotFoundError);
  }
});
