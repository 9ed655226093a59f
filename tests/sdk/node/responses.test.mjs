// The Responses API through the stock client. `MORTISE_BASE_URL` says where.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const model = "mortise-demo";
const client = new OpenAI({
  baseURL: process.env.MORTISE_BASE_URL,
  apiKey: "unused",
  maxRetries: 0,
});

test("a question gets a response", async () => {
  const response = await client.responses.create({ model, input: "What is mortise?" });
  assert.equal(response.status, "completed");
  assert.match(response.output_text, /mortise/i);
});

test("a stream adds up to its response", async () => {
  const stream = client.responses.stream({ model, input: "What is mortise?" });
  let text = "";
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") {
      text += event.delta;
    }
  }
  const final = await stream.finalResponse();
  const parts = final.output.flatMap((item) => (item.type === "message" ? item.content : []));
  assert.equal(parts.map((part) => part.text).join(""), text);
  assert.ok(text.length > 0);
});

test("a response is continued, kept and deleted", async () => {
  const first = await client.responses.create({ model, input: "Hello" });
  const second = await client.responses.create({
    model,
    input: "What is mortise?",
    previous_response_id: first.id,
  });
  assert.equal(second.previous_response_id, first.id);
  assert.equal((await client.responses.retrieve(second.id)).output_text, second.output_text);
  await client.responses.delete(second.id);
  await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
});

test("a conversation gathers its items", async () => {
  const conversation = await client.conversations.create({ metadata: { topic: "demo" } });
  await client.responses.create({ model, input: "Hello", conversation: conversation.id });
  const roles = [];
  for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) {
    if (item.type === "message") {
      roles.push(item.role);
    }
  }
  assert.deepEqual(roles, ["user", "assistant"]);
});
