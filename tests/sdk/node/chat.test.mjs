// The stock client against a running server. `MORTISE_BASE_URL` says where.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const model = "mortise-demo";
const client = new OpenAI({
  baseURL: process.env.MORTISE_BASE_URL,
  apiKey: "unused",
  maxRetries: 0,
});
const user = (content) => [{ role: "user", content }];

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the current weather for a location.",
    parameters: {
      type: "object",
      properties: { location: { type: "string", description: "City name" } },
      required: ["location"],
    },
  },
};

test("a question gets an answer", async () => {
  const completion = await client.chat.completions.create({
    model,
    messages: user("What is mortise?"),
  });
  assert.match(completion.choices[0].message.content, /mortise/i);
  assert.equal(completion.choices[0].finish_reason, "stop");
});

test("a stream says what the whole answer says", async () => {
  const request = { model, messages: user("What is mortise?"), temperature: 0.8, seed: 3 };
  const whole = await client.chat.completions.create(request);
  const stream = await client.chat.completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let pieces = 0;
  let usage;
  for await (const chunk of stream) {
    const piece = chunk.choices[0]?.delta?.content;
    if (piece) {
      text += piece;
      pieces += 1;
    }
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.ok(pieces > 3, "the answer came in one burst");
  assert.deepEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

test("a tool is called and its result used", async () => {
  const messages = user("What is the weather in Paris?");
  const first = await client.chat.completions.create({ model, messages, tools: [weather] });
  const [call] = first.choices[0].message.tool_calls;
  assert.equal(first.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(JSON.parse(call.function.arguments), { location: "Paris" });
  messages.push(first.choices[0].message, {
    role: "tool",
    tool_call_id: call.id,
    content: JSON.stringify({ temperature: 18, condition: "sunny" }),
  });
  const second = await client.chat.completions.create({ model, messages, tools: [weather] });
  assert.match(second.choices[0].message.content, /18/);
});

test("the tool runner of the SDK closes the loop", async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model,
    messages: user("What is the weather in Paris?"),
    tools: [
      {
        type: "function",
        function: {
          ...weather.function,
          parse: JSON.parse,
          function: ({ location }) => {
            asked.push(location);
            return JSON.stringify({ temperature: 18, condition: "sunny" });
          },
        },
      },
    ],
  });
  assert.match(await runner.finalContent(), /sunny/);
  assert.deepEqual(asked, ["Paris"]);
});

test("a schema is met", async () => {
  const completion = await client.chat.completions.create({
    model,
    messages: user("Extract the person: Ada Lovelace is 36 years old and lives in London."),
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "person",
        strict: true,
        schema: {
          type: "object",
          properties: { name: { type: "string" }, age: { type: "integer" } },
          required: ["name", "age"],
          additionalProperties: false,
        },
      },
    },
  });
  assert.deepEqual(JSON.parse(completion.choices[0].message.content), {
    name: "Ada Lovelace",
    age: 36,
  });
});

test("an answer is parsed into a zod type, whole and streamed", async () => {
  const Person = z.object({ name: z.string(), age: z.number().int() });
  const request = {
    model,
    messages: user("Extract the person: Ada Lovelace is 36 years old and lives in London."),
    response_format: zodResponseFormat(Person, "person"),
  };
  const whole = await client.chat.completions.parse(request);
  const ada = { name: "Ada Lovelace", age: 36 };
  assert.deepEqual(whole.choices[0].message.parsed, ada);
  const stream = client.chat.completions.stream(request);
  assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, ada);
});

test("the tool runner takes zod functions", async () => {
  const asked = [];
  const get_weather = zodFunction({
    name: "get_weather",
    description: "Get the current weather for a location.",
    parameters: z.object({ location: z.string().describe("City name") }),
    function: ({ location }) => {
      asked.push(location);
      return { temperature: 18, condition: "sunny" };
    },
  });
  const messages = user("What is the weather in Paris?");
  const runner = client.chat.completions.runTools({ model, messages, tools: [get_weather], stream: true });
  assert.match(await runner.finalContent(), /sunny/);
  assert.deepEqual(asked, ["Paris"]);
});

test("a stream that is left early can be left", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages: user("What is mortise?"),
    stream: true,
  });
  for await (const _ of stream) break;
  const after = await client.chat.completions.create({ model, messages: user("Hello") });
  assert.ok(after.choices[0].message.content);
});

test("mistakes are the SDK's own errors and name the field", async () => {
  await assert.rejects(
    client.chat.completions.create({ model, messages: user("Hi"), temperature: 9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature",
  );
  await assert.rejects(
    client.chat.completions.create({ model, messages: [] }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "messages",
  );
  await assert.rejects(client.images.generate({ model, prompt: "a joint" }), OpenAI.NotFoundError);
});

test("models are listed", async () => {
  const names = [];
  for await (const entry of client.models.list()) names.push(entry.id);
  assert.ok(names.includes(model));
});
