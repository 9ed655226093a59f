// The playground of another machine over plain http, where browsers keep some of their functions back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, last, open, PLAIN, say } from "./page.mjs";

const NARROW = { viewport: { width: 360, height: 700 } };

/** What is on the clipboard, as a paste tells it. */
async function pasted(page) {
  await page.fill("#prompt", "");
  await page.focus("#prompt");
  await page.keyboard.press("ControlOrMeta+V");
  return page.inputValue("#prompt");
}

test("messages are sent, kept and copied over plain http", async () => {
  const { page, close } = await open(PLAIN, NARROW);
  assert.deepEqual(await page.evaluate(() => [isSecureContext, "clipboard" in navigator, "randomUUID" in crypto]), [false, false, false]);
  await say(page, "markdown, please");
  await page.getByRole("button", { name: "Copy the answer" }).click();
  await page.locator(".note", { hasText: "Copied" }).waitFor();
  assert.match(await pasted(page), /^## A title\n[^]*\| 1 \| 2 \|/);
  await page.evaluate(() => document.getElementById("notes").replaceChildren());
  await last(page).locator(".code .copy").click();
  await page.locator(".note", { hasText: "Copied" }).waitFor();
  assert.equal(await pasted(page), "if a < b { **no** }");
  await accessible(page, "an answer over plain http");
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.click("#toggle-sidebar");
  await page.locator(".chat").first().click();
  assert.match(await last(page).innerText(), /A title/);
  await close();
});

test("a browser that copies nothing is told of", async () => {
  const prepare = (page) => page.addInitScript(() => (Document.prototype.execCommand = () => false));
  const { page, close } = await open(PLAIN, { ...NARROW, prepare });
  await say(page, "Hello");
  await page.getByRole("button", { name: "Copy the answer" }).click();
  await page.locator(".note.error", { hasText: "Select the text" }).waitFor();
  assert.equal(await page.locator("textarea[aria-hidden]").count(), 0);
  await close();
});
