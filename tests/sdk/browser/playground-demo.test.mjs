// The playground as people use it, on the demo model.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, answered, DEMO, last, open, picture, say } from "./page.mjs";

const WEATHER = JSON.stringify([
  { name: "get_weather", description: "Tells the weather.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
]);

test("an answer streams, is made again, and follows an edited question", async () => {
  const { page, close } = await open(DEMO);
  await say(page, "What is mortise?");
  assert.match(await last(page).locator(".text").innerText(), /mortise is/);
  assert.match(await last(page).locator(".numbers").innerText(), /\d+ \+ \d+ tokens/);
  const [request] = await Promise.all([
    page.waitForRequest(/completions$/),
    page.getByRole("button", { name: "Regenerate" }).click(),
  ]);
  await answered(page);
  assert.deepEqual(request.postDataJSON().messages, [{ role: "user", content: "What is mortise?" }]);
  // By keyboard alone: up opens the last message, Enter sends it.
  await page.focus("#prompt");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.type("My name is Ada.");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["My name is Ada."]);
  assert.match(await last(page).innerText(), /Ada/);
  // It is there after a reload, and no text is lost.
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".chat").first().click();
  assert.match(await last(page).innerText(), /Ada/);
  await close();
});

test("calls are cards, and the user is the tool", async () => {
  const { page, close } = await open(DEMO);
  await page.locator("#group-tools summary").click();
  await page.fill("#set-tools", "[{]");
  assert.match(await page.locator("#fault-tools").innerText(), /JSON/);
  await page.fill("#prompt", "What is the weather in Paris?");
  await page.keyboard.press("Enter");
  assert.match(await page.locator(".note.error").innerText(), /tools/);
  assert.equal(await page.locator(".message").count(), 0);
  await page.fill("#set-tools", WEATHER);
  await page.focus("#prompt");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".card");
  await answered(page);
  assert.equal(await page.locator(".card header").innerText(), "get_weather");
  assert.match(await page.locator(".card pre").innerText(), /"city": "Paris"/);
  await accessible(page, "a call");
  await page.getByLabel("Result of get_weather").fill('{"weather": "sunny", "temperature": 21}');
  const [request] = await Promise.all([
    page.waitForRequest(/completions$/),
    page.getByRole("button", { name: "Send results" }).click(),
  ]);
  await answered(page);
  const [, call, result] = request.postDataJSON().messages;
  assert.equal(result.tool_call_id, call.tool_calls[0].id);
  assert.match(await last(page).locator(".text").innerText(), /sunny|21/);
  assert.match(await page.locator(".card .result").innerText(), /sunny/);
  await picture(page, "playground");
  await close();
});

test("tools of the server are shown with their results", async () => {
  const { page, close } = await open(DEMO);
  await page.locator("#group-tools summary").click();
  await page.fill("#set-server_tools", "calculate");
  await say(page, "What is 17 * 23?");
  assert.equal(await page.locator(".card header").innerText(), "calculate");
  assert.match(await page.locator(".card .result").innerText(), /answered\s+.*391/s);
  assert.match(await last(page).locator(".text").innerText(), /391/);
  assert.equal(await page.getByRole("button", { name: "Send results" }).count(), 0);
  // The conversation goes on from there.
  await say(page, "What is mortise?");
  assert.match(await last(page).locator(".text").innerText(), /mortise is/);
  await close();
});

test("answers as JSON stand beside their schema", async () => {
  const { page, close } = await open(DEMO);
  await page.locator("#group-schema summary").click();
  await page.fill("#set-schema", '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": false}');
  await say(page, "Put into JSON: My name is Ada.");
  const [answer, schema] = await page.locator(".beside pre").allInnerTexts();
  assert.deepEqual(Object.keys(JSON.parse(answer)), ["name"]);
  assert.equal(JSON.parse(schema).type, "object");
  await close();
});

test("tokens tell their probabilities, and prompts their control tokens", async () => {
  const { page, close } = await open(DEMO);
  await page.check("#set-logprobs");
  await say(page, "What is mortise?");
  await page.locator(".token").first().hover();
  assert.match(await page.locator(".token-detail .chosen").innerText(), /%/);
  assert.ok((await page.locator(".token-detail li").count()) > 3);
  await page.locator(".tokens").press("ArrowRight");
  assert.equal(await page.locator(".token.current").innerText(), await page.locator(".token").nth(1).innerText());
  // The letters of a control token, typed by a user, are letters.
  await page.fill("#prompt", "<|im_end|>");
  await page.click("#look");
  const specials = page.locator(".piece.special");
  await specials.first().waitFor();
  assert.equal(new Set(await specials.allInnerTexts()).size, 2);
  const prompt = await page.locator(".prompt").innerText();
  assert.equal(prompt.match(/<\|im_end\|>/g).length, 1 + (await specials.filter({ hasText: "<|im_end|>" }).count()));
  await accessible(page, "a prompt");
  await picture(page, "prompt");
  await close();
});

test("a key is asked for, sent, and gone with the tab", async () => {
  const { page, close } = await open(process.env.MORTISE_LOCKED_URL);
  assert.match(await page.locator(".note.error").innerText(), /API key/);
  await page.fill("#set-key", "the-key");
  await page.locator("#set-key").press("Tab");
  await page.waitForFunction(() => document.getElementById("model-0").options.length > 0);
  await say(page, "What is mortise?");
  assert.match(await last(page).locator(".text").innerText(), /mortise is/);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("the-key")), false);
  await close();
});

test("the page works on a phone, in the dark, and says its names", async () => {
  for (const colorScheme of ["dark", "light"]) {
    const { page, close } = await open(DEMO, { viewport: { width: 360, height: 700 }, colorScheme, hasTouch: true });
    await accessible(page, `narrow, ${colorScheme}`);
    for (const side of ["sidebar", "settings"]) {
      await page.click(`#toggle-${side}`);
      await page.locator(`#${side}`).waitFor();
      await accessible(page, `${side}, ${colorScheme}`);
      await page.keyboard.press("Escape");
      assert.equal(await page.locator(`#${side}`).isVisible(), false);
    }
    await say(page, "What is 27 + 48?");
    assert.match(await last(page).innerText(), /75/);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
    await accessible(page, `an answer, ${colorScheme}`);
    await picture(page, `phone-${colorScheme}`);
    await close();
  }
});
