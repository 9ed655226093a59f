// Texts that would be code if any of them became markup, in every field that a server or a file can fill.

import assert from "node:assert/strict";
import { test } from "node:test";
import { last, open, say, SCRIPTED } from "./page.mjs";
import { CORPUS, MARKUP } from "./payloads.mjs";

/** No payload has become anything but text: what was made of them is what Markdown may make. */
async function harmless(page, what) {
  const found = await page.evaluate(() => {
    const bad = [];
    for (const element of document.querySelectorAll("#columns *, #chats *, #models *, #inspect-body *, #notes *, #stores *, #pending *, #documents-state *")) {
      const name = element.tagName.toLowerCase();
      if (/^(script|iframe|object|embed|img|svg|math|style|link|base|meta|form|video|audio|template|marquee|xss)$/.test(name)) bad.push(name);
      for (const { name: attribute } of element.attributes) {
        if (attribute.startsWith("on") || ["style", "srcdoc", "src", "formaction"].includes(attribute)) bad.push(`${name} ${attribute}`);
      }
      if (name === "a" && !["http:", "https:", "mailto:"].includes(new URL(element.href).protocol)) bad.push(element.href);
    }
    return bad;
  });
  assert.deepEqual(found, [], what);
}

const chunk = (delta, more = {}) => ({ choices: [{ index: 0, delta, ...more }] });

/** What a hostile server streams: each payload in each field, and its text in each place of Markdown. */
function streamed(payloads) {
  const logged = (token) => ({ logprobs: { content: [{ token, logprob: -1, top_logprobs: [{ token, logprob: -2 }] }] } });
  const each = payloads.flatMap((text, index) => [
    chunk({ reasoning_content: text }),
    ...["\n\n", text, "\n\n- ", text, "\n\n> ", text, "\n\n| ", text, " | b |\n|---|---|\n| ", text, " | c |\n\n```", text, "\n", text, "\n```\n\n# ", text].map((content) =>
      chunk({ content }, logged(content)),
    ),
    chunk({ tool_calls: [{ index, id: `${index}${text}`, function: { name: text, arguments: JSON.stringify({ [text]: text }) } }] }),
    chunk({ server_tool_calls: [{ index, id: `ran ${index}`, name: text, arguments: text, outcome: text, output: text }] }),
    chunk({}, { finish_reason: text }),
  ]);
  return [chunk({ role: "assistant", content: "" }), ...each, { choices: [], usage: { prompt_tokens: 1, completion_tokens: 1 } }];
}

/** What a hostile server streams of searches and citations. */
function searched(payloads) {
  const row = (text, at) => ({ file_id: text, filename: text, text, number: at, start: at, end: at + 1, page: text, score: text });
  const items = payloads.map((text, at) => ({ type: "response.output_item.done", output_index: at, item: { type: "file_search_call", status: text, queries: [text], results: [row(text, at)] } }));
  const said = payloads.flatMap((text, at) => [
    { type: "response.output_item.done", output_index: at, item: { type: "mcp_call", id: `m${at}`, name: text, arguments: text, error: text, output: text } },
    { type: "response.output_text.delta", output_index: at, delta: `${text}\n\n` },
    { type: "response.output_text.annotation.added", annotation: { filename: text, start: at, end: at + 1, page: text } },
  ]);
  return [...items, ...said, { type: "response.incomplete", response: { status: "incomplete", incomplete_details: { reason: payloads[0] }, usage: { input_tokens: payloads[0], output_tokens: payloads[0] } } }];
}

/** Payloads in groups, one answer each. */
const groups = (payloads, size) => payloads.flatMap((_, at) => (at % size ? [] : [payloads.slice(at, at + size)]));

const events = (chunks) => chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");

test("what a hostile server writes into any field stays text", async () => {
  assert.ok(CORPUS.length >= 100, `${CORPUS.length}`);
  let group = CORPUS.slice(0, 1);
  const json = (value) => ({ contentType: "application/json", body: JSON.stringify(value) });
  const prepare = async (page) => {
    await page.route("**/v1/models", (route) => route.fulfill(json({ data: CORPUS.map((id) => ({ id })) })));
    await page.route("**/version", (route) => route.fulfill(json({ version: CORPUS[0] })));
    await page.route("**/completions", (route) => route.fulfill({ contentType: "text/event-stream", body: `${events(streamed(group))}data: [DONE]\n\n` }));
    await page.route("**/render", (route) => route.fulfill(json({ count: group[0], max_model_len: group[0], stop: group, template: { plugin: group[0], version: group[0], microseconds: group[0] } })));
    await page.route("**/v1/vector_stores?*", (route) => route.fulfill(json({ data: CORPUS.map((text) => ({ id: text, name: text, file_counts: { completed: text } })) })));
    await page.route("**/v1/responses", (route) => route.fulfill({ contentType: "text/event-stream", body: `${events(searched(CORPUS))}` }));
    await page.route("**/tokenize", (route) => route.fulfill(json({ tokens: CORPUS.map((_, at) => at), token_strs: CORPUS.map((text) => `<${text}>`) })));
  };
  const { page, close } = await open(SCRIPTED, { prepare });
  for (group of groups(CORPUS, 30)) {
    await page.click("#new");
    await page.selectOption("#model-0", group[0]);
    await say(page, group.join("\n"));
    await harmless(page, group[0]);
    const cards = await last(page).locator(".card header").allTextContents();
    assert.deepEqual(cards, [...group, ...group]);
  }
  // Tokens, the prompt, and the refusal of a request.
  await page.check("#set-logprobs");
  group = MARKUP;
  await page.click("#new");
  await say(page, group[0]);
  assert.ok((await page.locator(".token").count()) > MARKUP.length);
  await page.locator(".token").nth(1).hover();
  await page.click("#look");
  await page.locator(".prompt").waitFor();
  assert.equal(await page.locator(".piece").count(), CORPUS.length);
  await harmless(page, "tokens and a prompt");
  await page.keyboard.press("Escape");
  // Searches in documents, and names of collections.
  await page.uncheck("#set-logprobs");
  await page.locator("#group-stores summary").click();
  await page.locator("#stores input").first().check();
  await page.click("#new");
  await say(page, MARKUP[0]);
  assert.equal(await last(page).locator(".card.search").count(), CORPUS.length);
  assert.equal(await last(page).locator(".citations li").count(), CORPUS.length);
  await harmless(page, "searches");
  await page.locator("#stores input").first().uncheck();
  const message = CORPUS.join("\n");
  await page.route("**/completions", (route) => route.fulfill({ status: 400, ...json({ error: { message, param: CORPUS[0] } }) }));
  await say(page, "Hello");
  assert.ok((await last(page).locator(".problem.error").textContent()).includes(message));
  await harmless(page, "a refusal");
  await close();
});

test("a file of conversations brings nothing but texts", async () => {
  const { page, close } = await open(SCRIPTED);
  const messages = CORPUS.flatMap((text, at) => [
    { role: "user", content: text, files: [{ name: text, type: `image/${text}`, data: `data:${text}` }, { name: text, type: text, data: text }] },
    { role: "assistant", content: text, reasoning: text, searches: [{ query: text, results: [{ filename: text, text }] }], citations: [{ filename: text }], calls: [{ id: text, name: text, arguments: text }], ran: [{ id: 1, name: text, arguments: text, outcome: text, output: text }], finish: text, error: text, schema: "", asked: at },
    { role: "tool", call: text, content: text },
  ]);
  const asks = CORPUS.map((text) => ({ model: text, settings: { system: text, [text]: text } }));
  const threads = [{ model: CORPUS[2], messages }];
  const chats = [{ title: CORPUS[0], settings: { system: CORPUS[1], __proto__: 1 }, threads, aside: threads[0], asks }];
  const buffer = Buffer.from(JSON.stringify({ mortise: "conversations", version: 1, chats }));
  await page.setInputFiles("#file", { name: "c.json", mimeType: "application/json", buffer });
  await page.locator(".message").nth(2 * CORPUS.length - 1).waitFor();
  assert.deepEqual(await page.locator(".numbers").allTextContents(), CORPUS);
  await harmless(page, "a file");
  await page.click("#compare");
  assert.equal(await page.locator(".message").count(), 4 * CORPUS.length);
  await harmless(page, "a column of a file");
  await page.locator(".chat").first().hover();
  await page.getByRole("button", { name: /^Delete/ }).first().click();
  await page.getByRole("button", { name: "Undo" }).waitFor();
  await harmless(page, "a deletion");
  await close();
});

test("the server's own answers with markup stay text", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.selectOption("#model-0", "hostile <img src=x onerror=globalThis.ran=1>");
  await say(page, "<img src=x onerror=globalThis.ran=1>");
  assert.match(await last(page).locator(".thoughts").textContent(), /<script>/);
  assert.match(await last(page).locator(".text").innerText(), /<img src=x onerror/);
  await harmless(page, "an answer");
  await close();
});

test("the policy of the page allows nothing else", async () => {
  const { page, close } = await open(SCRIPTED);
  const policy = await page.evaluate(async () => (await fetch("/")).headers.get("content-security-policy"));
  const directives = new Map(policy.split("; ").map((part) => [part.split(" ")[0], part.slice(part.indexOf(" ") + 1)]));
  assert.equal(directives.get("default-src"), "'none'");
  for (const name of ["script-src", "style-src", "connect-src", "img-src"]) assert.equal(directives.get(name), "'self'");
  assert.ok(!/unsafe|data:|blob:|\*|https?:/.test(policy), policy);
  await close();
  // A script that got into the page all the same would not run, and would be told.
  const other = await open(SCRIPTED);
  await other.page.evaluate(() => {
    const script = document.createElement("script");
    try {
      script.textContent = "globalThis.ran = 1";
      document.body.append(script);
    } catch {
      globalThis.refused = true;
    }
  });
  assert.equal(await other.page.evaluate(() => globalThis.ran), undefined);
  assert.equal(await other.page.evaluate(() => globalThis.refused || globalThis.stopped.length > 0), true);
  await other.page.context().close();
});
