// Vercel's AI SDK, with its provider for OpenAI and the one for servers like it. `MORTISE_BASE_URL` says where the
// demo model is, `MORTISE_EMBEDDINGS_URL` a model that makes embeddings.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.MORTISE_BASE_URL;
const openai = createOpenAI({ baseURL, apiKey: "unused" });
const compatible = createOpenAICompatible({
  name: "mortise",
  baseURL,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const models = {
  "@ai-sdk/openai, chat": openai.chat("mortise-demo"),
  "@ai-sdk/openai, responses": openai.responses("mortise-demo"),
  "@ai-sdk/openai-compatible": compatible.chatModel("mortise-demo"),
};
const ada = "Extract the person: Ada Lovelace is 36 years old and lives in London.";
const person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });
const tools = {
  get_weather: tool({
    description: "Get the current weather for a location.",
    inputSchema: z.object({ location: z.string().describe("City name") }),
    execute: async ({ location }) => ({ location, temperature: 18, condition: "sunny" }),
  }),
};

for (const [name, model] of Object.entries(models)) {
  describe(name, () => {
    const ask = (prompt, options) => ({ model, prompt, maxRetries: 0, ...options });

    test("whole and streamed", async () => {
      const question = ask("What is mortise?", { temperature: 0 });
      const whole = await generateText(question);
      assert.match(whole.text, /mortise/i);
      assert.equal(whole.finishReason, "stop");
      assert.ok(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
      const streamed = streamText(question);
      const pieces = [];
      for await (const piece of streamed.textStream) {
        pieces.push(piece);
      }
      assert.equal(pieces.join(""), whole.text);
      assert.ok(pieces.length > 3);
      assert.ok((await streamed.usage).outputTokens > 0);
    });

    test("tools are run and their results used", async () => {
      const question = ask("What is the weather in Paris?", { tools, stopWhen: isStepCount(3) });
      const whole = await generateText(question);
      assert.deepEqual(whole.steps[0].toolCalls[0].input, { location: "Paris" });
      assert.match(whole.text, /18/);
      const streamed = streamText(question);
      await streamed.consumeStream();
      assert.equal((await streamed.steps).length, 2);
      assert.match(await streamed.text, /18/);
    });

    test("structured output, whole and streamed", async () => {
      const expected = { name: "Ada Lovelace", age: 36, city: "London" };
      const question = ask(ada, { output: Output.object({ schema: person }) });
      assert.deepEqual((await generateText(question)).output, expected);
      const streamed = streamText(question);
      const partial = [];
      for await (const piece of streamed.partialOutputStream) {
        partial.push(piece);
      }
      assert.deepEqual(partial.at(-1), expected);
      assert.ok(partial.length > 3);
    });

    test("a mistake is the SDK's own error", async () => {
      await assert.rejects(generateText(ask("Hello", { topP: 7 })), (error) => {
        assert.equal(error.statusCode, 400);
        assert.match(error.message, /top_p/);
        return true;
      });
    });
  });
}

test("texts are continued", async () => {
  const model = compatible.completionModel("mortise-demo");
  const { text } = await generateText({ model, prompt: "The mortise is", maxOutputTokens: 8 });
  assert.ok(text.length > 0);
});

test("embeddings", async () => {
  const url = process.env.MORTISE_EMBEDDINGS_URL;
  const models = [
    createOpenAI({ baseURL: url, apiKey: "unused" }).embedding("model"),
    createOpenAICompatible({ name: "mortise", baseURL: url }).embeddingModel("model"),
  ];
  for (const model of models) {
    const { embeddings } = await embedMany({ model, values: ["a cat", "a dog"], maxRetries: 0 });
    assert.deepEqual(embeddings.map((vector) => vector.length), [384, 384]);
  }
});
