// What the playground keeps: what answers were asked with, columns that are closed, conversations that are deleted, settings that are typed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { accessible, answered, last, open, say, SCRIPTED } from "./page.mjs";

/** The prompt that the eye below the last answer shows, and the model that it names. */
async function seen(page) {
  await last(page).getByRole("button", { name: "What the model saw" }).click();
  await page.locator(".prompt").waitFor();
  const shown = [await page.locator(".prompt").innerText(), await page.locator("#inspect-model").innerText(), await page.locator("#inspect-body .hint").allInnerTexts()];
  await page.keyboard.press("Escape");
  return shown;
}

const give = (page, text) => page.setInputFiles("#file", { name: "c.json", mimeType: "application/json", buffer: Buffer.from(text) });

test("an answer tells its model, and its eye shows the prompt that it was made from", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.fill("#set-system", "Be old.");
  await say(page, "Hello");
  assert.match(await last(page).locator(".numbers").innerText(), /^scripted · \d+ \+ \d+ tokens/);
  await page.fill("#set-system", "Be new.");
  await page.selectOption("#model-0", "other");
  const old = async () => {
    const [prompt, model, hints] = await seen(page);
    assert.match(prompt, /Be old\./);
    assert.doesNotMatch(prompt, /Be new\./);
    assert.deepEqual([model, hints], ["scripted", []]);
  };
  await old();
  // What would be sent now has the settings of now.
  await page.fill("#prompt", "And?");
  await page.click("#look");
  await page.locator(".prompt", { hasText: "Be new." }).waitFor();
  assert.equal(await page.locator("#inspect-model").innerText(), "other");
  await page.keyboard.press("Escape");
  await say(page, "And?");
  assert.match(await last(page).locator(".numbers").innerText(), /^other · /);
  assert.match((await seen(page))[0], /Be new\./);
  await page.locator(".message.assistant").first().getByRole("button", { name: "Regenerate" }).click();
  await answered(page);
  await page.fill("#set-system", "Be newest.");
  assert.match((await seen(page))[0], /Be new\./);
  // It is kept, and goes out and in with the conversation.
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const text = readFileSync(await file.path(), "utf8");
  for (const after of [() => page.reload().then(() => page.waitForSelector("body[data-ready]")), () => give(page, text)]) {
    await after();
    await page.locator(".chat").first().click();
    assert.match((await seen(page))[0], /Be new\./);
  }
  await close();
});

test("conversations of earlier versions load, and their prompts are told to be those of now", async () => {
  const { page, close } = await open(SCRIPTED);
  const messages = [{ role: "user", content: "Hello", files: [] }, { role: "assistant", content: "Hi", usage: { prompt: 1, completion: 2 } }];
  const chat = { title: "An old one", settings: { system: "Be as now." }, threads: [{ model: "scripted", messages }] };
  await give(page, JSON.stringify({ mortise: "conversations", version: 1, chats: [chat] }));
  await last(page).waitFor();
  assert.equal(await last(page).locator(".numbers").innerText(), "1 + 2 tokens");
  assert.equal(await page.inputValue("#set-top_k"), "");
  const [prompt, , hints] = await seen(page);
  assert.match(prompt, /Be as now\./);
  assert.match(hints.join(), /were not kept/);
  await close();
});

test("the settings of answers are kept once, and places that are wrong lead nowhere", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.fill("#set-system", "Only once.");
  await say(page, "One");
  await say(page, "Two");
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const { chats } = JSON.parse(readFileSync(await file.path(), "utf8"));
  assert.equal(chats[0].asks.length, 1);
  assert.equal(chats[0].asks[0].settings.system, "Only once.");
  for (const asked of [7, -1, 0.5, "length", "__proto__", null, {}]) {
    const messages = [{ role: "user", content: "Hello" }, { role: "assistant", content: "Hi", asked }];
    await give(page, JSON.stringify({ mortise: "conversations", chats: [{ ...chats[0], title: `asked ${asked}`, threads: [{ model: "other", messages }] }] }));
    await page.locator(".chat[aria-current]", { hasText: `asked ${asked}` }).waitFor();
    assert.equal(await last(page).locator(".numbers").innerText(), "");
  }
  await close();
});

const SAMPLING = { top_k: 40, min_p: 0.05, frequency_penalty: -0.5, presence_penalty: 0.25, repetition_penalty: 1.1 };

test("all numbers of the sampling reach both routes", async () => {
  const { page, close } = await open(SCRIPTED);
  await page.locator("#group-sampling summary").click();
  for (const [name, value] of Object.entries(SAMPLING)) await page.fill(`#set-${name}`, String(value));
  await page.fill("#prompt", "Hello");
  const picked = (body) => Object.fromEntries(Object.keys(SAMPLING).map((name) => [name, body[name]]));
  const [chat] = await Promise.all([page.waitForRequest(/completions$/), page.press("#prompt", "Enter")]);
  await answered(page);
  assert.deepEqual(picked(chat.postDataJSON()), SAMPLING);
  assert.equal(await page.locator(".problem.error").count(), 0);
  // Answers that search in documents have a route of their own.
  await page.evaluate(async () => {
    const made = await fetch("v1/vector_stores", { method: "POST", headers: { "content-type": "application/json" }, body: '{"name": "empty"}' });
    const field = document.getElementById("set-stores");
    field.value = (await made.json()).id;
    field.dispatchEvent(new Event("input"));
  });
  await page.fill("#prompt", "Hello again");
  const [search] = await Promise.all([page.waitForRequest(/responses$/), page.press("#prompt", "Enter")]);
  await answered(page);
  assert.deepEqual(picked(search.postDataJSON()), SAMPLING);
  assert.equal(await page.locator(".problem.error").count(), 0);
  for (const [name, wrong] of [["top_k", "1.5"], ["min_p", "2"], ["frequency_penalty", "-3"], ["presence_penalty", "x"], ["repetition_penalty", "0"]]) {
    await page.fill(`#set-${name}`, wrong);
    assert.match(await page.locator(`#fault-${name}`).innerText(), /It has to be a/);
  }
  await accessible(page, "faults of the sampling");
  await close();
});

test("a second column that is closed comes back with its answers", async () => {
  const { page, close } = await open(SCRIPTED);
  const columns = page.locator(".column");
  await page.click("#compare");
  await page.selectOption("#model-1", "other");
  await say(page, "Hello");
  await page.click("#compare");
  assert.equal(await columns.count(), 1);
  await page.locator(".note", { hasText: "is kept" }).waitFor();
  await say(page, "Alone");
  // It is kept in the browser too.
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".chat").first().click();
  await page.click("#compare");
  assert.deepEqual(await columns.nth(1).locator(".bubble").allInnerTexts(), ["Hello"]);
  assert.match(await columns.nth(1).locator(".text").innerText(), /the other model/);
  assert.equal(await page.inputValue("#model-1"), "other");
  // What has the focus does not go.
  const anew = page.getByRole("button", { name: "Begin it anew" });
  await anew.focus();
  await accessible(page, "a column that came back");
  await anew.click();
  assert.deepEqual(await columns.nth(1).locator(".bubble").allInnerTexts(), ["Hello", "Alone"]);
  // One without answers of its own is not kept: it begins with what the first has seen by then.
  await page.click("#compare");
  await say(page, "Once more");
  await page.click("#compare");
  assert.deepEqual(await columns.nth(1).locator(".bubble").allInnerTexts(), ["Hello", "Alone", "Once more"]);
  await close();
});

test("a conversation that was deleted is taken back", async () => {
  const { page, close } = await open(SCRIPTED);
  const remove = async (title) => {
    await page.locator(".chat", { hasText: title }).hover();
    await page.getByRole("button", { name: `Delete “${title}”` }).click();
  };
  const undo = page.getByRole("button", { name: "Undo" });
  await say(page, "First");
  await page.click("#new");
  await say(page, "Second");
  // The one that is shown: it is shown again.
  await remove("Second");
  assert.deepEqual(await page.locator(".chat").allInnerTexts(), ["First"]);
  assert.equal(await page.locator(".message").count(), 0);
  await undo.focus();
  await accessible(page, "a deletion");
  await undo.click();
  assert.equal(await page.locator(".chat[aria-current]").innerText(), "Second");
  assert.match(await last(page).innerText(), /scripted/);
  assert.equal(await undo.count(), 0);
  // One that is not: what is shown stays, and so does the order.
  await remove("First");
  assert.deepEqual(await page.locator(".chat").allInnerTexts(), ["Second"]);
  await undo.click();
  assert.deepEqual(await page.locator(".chat").allInnerTexts(), ["Second", "First"]);
  assert.equal(await page.locator(".chat[aria-current]").innerText(), "Second");
  // Without that, it is gone.
  await remove("First");
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  assert.deepEqual(await page.locator(".chat").allInnerTexts(), ["Second"]);
  await close();
});

test("settings are kept when typing pauses, and before the page goes", async () => {
  const { page, close } = await open(SCRIPTED);
  await say(page, "Hello");
  const read = await page.evaluate(() => {
    const [field, get] = [document.getElementById("set-system"), Storage.prototype.getItem];
    let reads = 0;
    Storage.prototype.getItem = function (name) {
      if (name.startsWith("mortise.chat.")) reads += 1;
      return get.call(this, name);
    };
    for (const letter of "Be brief, please.") {
      field.value += letter;
      field.dispatchEvent(new Event("input"));
    }
    Storage.prototype.getItem = get;
    return reads;
  });
  assert.equal(read, 0);
  await page.waitForFunction(() => JSON.stringify(localStorage).includes("Be brief, please."));
  await page.fill("#set-system", "Be gone.");
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".chat").first().click();
  assert.equal(await page.inputValue("#set-system"), "Be gone.");
  await close();
});
