// The playground as people use it, on models that say what a script says.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { accessible, answered, last, open, picture, say, SCRIPTED } from "./page.mjs";

test("a long answer stops where it is stopped", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.selectOption("#model-0", "slow");
  await page.fill("#prompt", "Go on");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".text")?.textContent.length > 40);
  await page.keyboard.press("Escape");
  await answered(page);
  assert.match(await last(page).innerText(), /Stopped\./);
  // The server ends it too.
  await page.waitForFunction(async () => /^mortise_active_streams 0$/m.test(await (await fetch("metrics")).text()));
  const length = await last(page).locator(".text").evaluate((text) => text.textContent.length);
  assert.ok(length < 11_000, `${length}`);
  await close();
});

test("an answer that is left is kept as far as it came, and one that is removed is gone", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.selectOption("#model-0", "slow");
  const begin = async (text) => {
    await page.fill("#prompt", text);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".text")?.textContent.length > 40);
  };
  await begin("Leave it");
  await page.click("#new");
  await answered(page);
  assert.equal(await page.locator(".message").count(), 0);
  await page.locator(".chat", { hasText: "Leave it" }).click();
  assert.match(await last(page).innerText(), /And so on.*Stopped\./s);
  await page.click("#new");
  await begin("Remove it");
  await page.locator(".chat", { hasText: "Remove it" }).hover();
  await page.getByRole("button", { name: "Delete “Remove it”" }).click();
  await page.waitForFunction(async () => /^mortise_active_streams 0$/m.test(await (await fetch("metrics")).text()));
  assert.deepEqual(await page.locator(".chat").allInnerTexts(), ["Leave it"]);
  await close();
});

test("reasoning is folded and markdown is shown", async () => {
  const { page, close } = await open(SCRIPTED);
  await say(page, "markdown, please");
  const answer = last(page);
  assert.equal(await answer.locator(".thoughts").isVisible(), false);
  await answer.locator("summary").press("Enter");
  assert.equal(await answer.locator(".thoughts").innerText(), "Let me think of 1 < 2.");
  assert.deepEqual(await answer.locator(".text h4").allInnerTexts(), ["A title"]);
  assert.deepEqual(await answer.locator(".text li").allInnerTexts(), ["one", "two & three"]);
  assert.deepEqual(await answer.locator("td").allInnerTexts(), ["1", "2"]);
  assert.equal(await answer.locator("pre code").innerText(), "if a < b { **no** }");
  assert.equal(await answer.locator("strong").innerText(), "bold");
  assert.equal(await answer.locator("a").getAttribute("href"), "https://example.com/");
  await accessible(page, "a conversation");
  await close();
});

test("two models answer side by side", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.click("#compare");
  await page.selectOption("#model-1", "other");
  await say(page, "Hello");
  const columns = page.locator(".column");
  assert.match(await columns.nth(0).locator(".text").innerText(), /scripted/);
  assert.match(await columns.nth(1).locator(".text").innerText(), /the other model/);
  await accessible(page, "two columns");
  await picture(page, "columns");
  await page.click("#compare");
  assert.equal(await columns.count(), 1);
  await close();
});

test("settings reach the request, and those left out do not", async () => {
  const { page, close } = await open(SCRIPTED);
  const typed = { system: "Be brief.", temperature: "0.5", top_p: "0.9", max_tokens: "7", seed: "3", stop: "one\ntwo" };
  for (const [name, value] of Object.entries(typed)) await page.fill(`#set-${name}`, value);
  await page.fill("#prompt", "Hello");
  const [request] = await Promise.all([page.waitForRequest(/completions$/), page.keyboard.press("Enter")]);
  await answered(page);
  const body = request.postDataJSON();
  assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
  const { temperature, top_p, max_tokens, seed, stop } = body;
  assert.deepEqual({ temperature, top_p, max_tokens, seed, stop }, { temperature: 0.5, top_p: 0.9, max_tokens: 7, seed: 3, stop: ["one", "two"] });
  assert.deepEqual(["tools", "response_format", "logprobs", "reasoning_effort"].filter((name) => name in body), []);
  assert.match(await last(page).innerText(), /limit of tokens/);
  await page.fill("#set-temperature", "9");
  assert.match(await page.locator("#fault-temperature").innerText(), /from 0 to 2/);
  await accessible(page, "a fault");
  await close();
});

test("conversations go out as a file and come in again", async () => {
  const { page, close } = await open(SCRIPTED);
  await say(page, "Hello");
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const text = readFileSync(await file.path(), "utf8");
  assert.equal(JSON.parse(text).chats[0].threads[0].messages.length, 2);
  await page.locator(".chat").first().hover();
  await page.getByRole("button", { name: /^Delete/ }).click();
  assert.equal(await page.locator(".chat").count(), 0);
  const give = (text) => page.setInputFiles("#file", { name: "c.json", mimeType: "application/json", buffer: Buffer.from(text) });
  for (const bad of ["{", "[]", '{"mortise": "conversations", "chats": [{}]}']) {
    await give(bad);
    await page.locator(".note.error").last().waitFor();
    assert.equal(await page.locator(".chat").count(), 0, bad);
  }
  await give(text);
  await page.locator(".chat").waitFor();
  assert.match(await last(page).innerText(), /scripted/);
  await close();
});

const CLAUSES = "# Contract\n\nClause one names the parties.\n\n## Term\n\nClause three ends the zebra agreement after a year.\n";

test("documents are added, searched and cited", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.selectOption("#model-0", "finder");
  await page.setInputFiles("#attachments", { name: "clauses.md", mimeType: "text/markdown", buffer: Buffer.from(CLAUSES) });
  await page.locator("#documents-state", { hasText: "chunk" }).waitFor();
  await page.locator("#stores input:checked").waitFor();
  await accessible(page, "the collections");
  await page.fill("#prompt", "When does the zebra agreement end?");
  const [request] = await Promise.all([page.waitForRequest(/responses$/), page.press("#prompt", "Enter")]);
  await answered(page);
  const { tools, store, include } = request.postDataJSON();
  assert.deepEqual([tools[0].type, tools[0].vector_store_ids.length, store, include], ["file_search", 1, false, ["file_search_call.results"]]);
  const answer = last(page);
  assert.equal(await answer.locator(".text").innerText(), "It ends after a year [1].");
  assert.match(await answer.locator(".card.search header").innerText(), /Search: zebra/);
  const source = answer.locator(".citations li").first();
  const [, start, end] = (await source.locator("summary").innerText()).match(/\[1\] clauses\.md\s+bytes (\d+) to (\d+)/);
  await source.locator("summary").click();
  const passage = await source.locator("pre").innerText();
  assert.match(passage, /zebra/);
  assert.ok(CLAUSES.slice(Number(start), Number(end)).includes(passage.trim()), `${start} ${end}: ${passage}`);
  assert.match(await answer.locator(".numbers").innerText(), /\d+ .* tokens/);
  await accessible(page, "an answer with sources");
  // The prompt behind the answer has the declared tool and the passages that were found.
  await answer.getByRole("button", { name: "What the model saw" }).click();
  const seen = page.locator("#inspect-body .prompt");
  await seen.waitFor();
  const prompt = await seen.innerText();
  for (const part of ["file_search", "Passages of documents", "ends the zebra agreement after a year"]) assert.ok(prompt.includes(part), `${part}: ${prompt}`);
  assert.match(await page.locator("#inspect-body .facts").innerText(), /tokens of .* rendered by/);
  await accessible(page, "the prompt behind an answer with sources");
  await page.keyboard.press("Escape");
  await picture(page, "documents");
  // The next question has the search in it, and all of it is there after a reload.
  await page.fill("#prompt", "And who are the parties?");
  const [again] = await Promise.all([page.waitForRequest(/responses$/), page.press("#prompt", "Enter")]);
  await answered(page);
  assert.deepEqual(again.postDataJSON().input.map(({ type }) => type), ["message", "file_search_call", "message", "message"]);
  assert.equal(again.postDataJSON().input[1].results[0].filename, "clauses.md");
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".chat").first().click();
  await page.locator(".citations li").first().waitFor();
  // A document that the server cannot read is told of in its own words.
  await page.locator("#group-stores summary").click();
  await page.setInputFiles("#documents", { name: "a.zip", mimeType: "application/zip", buffer: Buffer.from("PK\x03\x04nothing") });
  await page.locator("#documents-state li", { hasText: "a.zip" }).getByText(/ZIP/).waitFor();
  await close();
});

/** A picture of one pixel. */
const PIXEL = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64");

test("images and recordings go with a message, and refusals are the server's", async () => {
  const { page, close } = await open(SCRIPTED);
  const files = [{ name: "dot.png", mimeType: "image/png", buffer: PIXEL }, { name: "hum.wav", mimeType: "audio/wav", buffer: Buffer.from("RIFF") }];
  await page.setInputFiles("#attachments", files);
  await page.locator("#pending canvas").waitFor();
  assert.deepEqual(await page.locator("#pending li").allInnerTexts(), ["dot.png", "hum.wav"]);
  await accessible(page, "files to send");
  await say(page, "What is this?");
  assert.match(await last(page).locator(".problem.error").innerText(), /has the type `image_url`; this model reads only text$/);
  assert.equal(await page.locator(".message.user canvas").count(), 1);
  assert.equal(await page.locator("#pending li").count(), 0);
  // A model that takes them gets them as they are.
  const events = [{ choices: [{ index: 0, delta: { content: "A dot." } }] }].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
  await page.route("**/completions", (route) => route.fulfill({ contentType: "text/event-stream", body: `${events}data: [DONE]\n\n` }));
  const [request] = await Promise.all([page.waitForRequest(/completions$/), page.getByRole("button", { name: "Regenerate" }).click()]);
  await answered(page);
  assert.deepEqual(request.postDataJSON().messages[0].content, [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: `data:image/png;base64,${PIXEL.toString("base64")}` } },
    { type: "input_audio", input_audio: { data: Buffer.from("RIFF").toString("base64"), format: "wav" } },
  ]);
  assert.equal(await last(page).locator(".text").innerText(), "A dot.");
  await page.setInputFiles("#attachments", files.slice(0, 1));
  await page.getByRole("button", { name: "Take dot.png away" }).click();
  assert.equal(await page.locator("#pending li").count(), 0);
  await close();
});
