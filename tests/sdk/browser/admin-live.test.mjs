// The page of the admin side shows changes that are made elsewhere, and has changes kept for the next start.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { button, events, json, row, signedIn } from "./admin.mjs";
import { accessible, ADMIN, ADMIN_API, ADMIN_KEY, open } from "./page.mjs";

/** A change that another client makes. */
async function elsewhere(method, path, body) {
  const headers = { "X-Admin-Token": ADMIN_KEY, "Content-Type": "application/json" };
  const response = await fetch(`${ADMIN}v1/admin/${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

const chat = (model, key) =>
  fetch(`${ADMIN_API}v1/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ model, max_tokens: 2, messages: [{ role: "user", content: "Hi" }] }),
  });

test("aliases that change elsewhere are shown", async () => {
  const { page, close } = await signedIn("aliases");
  await page.getByText("There is no alias.").waitFor();
  await elsewhere("PUT", "aliases/live", { target: "slow" });
  await row(page, "aliases", "live").waitFor();
  await elsewhere("PUT", "aliases/live", { target: "slow", canary: { target: "other", percent: 5 } });
  await page.getByText("slow; 5 % to other").waitFor();
  await elsewhere("DELETE", "aliases/live");
  await page.getByText("There is no alias.").waitFor();
  await close();
});

test("keys that change elsewhere or expire are shown, and so is what requests cost", async () => {
  let reads = 0;
  const spend = (requests) => ({ currency: "EUR", days: [{ begins_at: 1, accounts: [{ account: "acme", requests, refused: 0, reserved: "0", settled: "0" }] }] });
  const prepare = (page) => page.route("**/v1/admin/spend", (route) => route.fulfill(json(spend(1000 + ++reads))));
  const { page, close } = await signedIn("keys", { prepare });
  await page.getByText("No key has been issued here.").waitFor();
  await page.locator("#spend-table tbody tr").waitFor();
  const before = reads;
  assert.equal((await chat("slow")).status, 200);
  await page.waitForFunction((before) => Number(document.querySelector("#spend-table td:nth-child(3)").textContent.replace(",", "")) > 1000 + before, before);
  await elsewhere("POST", "keys", { id: "bea", expires_at: Math.floor(Date.now() / 1000) + 3 });
  // Time alone changes its state.
  await row(page, "keys", "bea").getByText("expired", { exact: true }).waitFor();
  await elsewhere("POST", "keys/bea/revoke");
  await row(page, "keys", "bea").getByText("revoked", { exact: true }).waitFor();
  await elsewhere("DELETE", "keys/bea");
  await page.getByText("No key has been issued here.").waitFor();
  await close();
});

test("how much of its limits a key has used is shown, and follows its requests", async () => {
  const reads = [];
  const prepare = (page) => page.on("request", (request) => /v1.admin.*quotas/.test(request.url()) && !request.url().includes("events") && reads.push(request.url()));
  const { page, close } = await signedIn("keys", { prepare });
  const made = await elsewhere("POST", "keys", { id: "dan", terms: { requests_per_day: 4, tokens_per_day: 100_000 } });
  await elsewhere("POST", "keys", { id: "eve" });
  const dan = row(page, "keys", "dan");
  const requests = dan.getByRole("meter", { name: "requests per day, dan" });
  await requests.waitFor();
  assert.equal(await requests.getAttribute("aria-valuetext"), "0 of 4 used, 4 left");
  await row(page, "keys", "eve").getByText("no limit", { exact: true }).first().waitFor();
  assert.equal((await chat("slow", made.key)).status, 200);
  // The words say what the bar does.
  await dan.getByText(/^1 of 4 used, 3 left; full again at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/).waitFor();
  assert.deepEqual(await requests.evaluate(({ value, max }) => [value, max]), [1, 4]);
  assert.equal(await requests.getAttribute("aria-valuenow"), "1");
  for (let left = 3; left > 0; left--) assert.equal((await chat("slow", made.key)).status, 200);
  assert.equal((await chat("slow", made.key)).status, 429);
  await dan.getByText(/^4 of 4 used, 0 left; /).waitFor();
  await accessible(page, "keys with limits");
  await elsewhere("POST", "keys/dan/revoke");
  await dan.getByText("Not known: the key is revoked", { exact: false }).waitFor();
  assert.equal(await dan.getByRole("meter").count(), 0);
  assert.deepEqual(reads, [], "the events tell; nothing is asked for");
  for (const id of ["dan", "eve"]) await elsewhere("DELETE", `keys/${id}`);
  await page.getByText("No key has been issued here.").waitFor();
  await close();
});

test("adapters and bindings that change elsewhere are shown", async () => {
  const adapter = { lora_id: "polite", base_model: "tiny", path: "/adapters/polite", status: "loading", rank: 4, size_bytes: 1024, usage_count: 0, last_error: null };
  const told = [{ loras: [adapter] }, { loras: [{ ...adapter, status: "loaded" }] }].map((data) => ["loras", data]);
  const prepare = (page) => page.route("**/v1/admin/events?topics=loras", (route) => route.fulfill({ contentType: "text/event-stream", body: events(told) }));
  const { page, close } = await signedIn("adapters", { prepare });
  await row(page, "adapters", "polite").getByText("loaded", { exact: true }).waitFor();
  await page.click("a[href='#plugins']");
  await page.getByText("No binding; plugins serve as they lie in the folder.").waitFor();
  await elsewhere("PUT", "plugins/bindings/made-elsewhere", { kind: "output-parser", models: ["slow"] });
  await page.locator("#plugins-bindings tbody tr", { hasText: "made-elsewhere" }).waitFor();
  await elsewhere("DELETE", "plugins/bindings/made-elsewhere");
  await page.getByText("No binding; plugins serve as they lie in the folder.").waitFor();
  await close();
});

test("a breaker that is open is shown", async () => {
  const { page, close } = await signedIn("models");
  const faraway = row(page, "models", "faraway");
  await faraway.getByText("loaded", { exact: true }).waitFor();
  assert.equal(await faraway.getByText("circuit").count(), 0);
  // Nobody listens where it is: after some failures it is not asked any more.
  for (let status = 0; status !== 503; status = (await chat("faraway")).status);
  await faraway.getByText(/^circuit (open|half open)$/).waitFor();
  await accessible(page, "an open circuit");
  // Who comes later is told, too.
  await page.reload();
  await faraway.getByText(/^circuit (open|half open)$/).waitFor();
  await close();
});

const kept = () => readFileSync(process.env.MORTISE_KEPT, "utf8");

test("changes are kept for the next start if that is ticked", async () => {
  const { page, close } = await signedIn("models");
  const box = (section) => page.locator(`#${section}-actions`).getByLabel("Keep changes for the next start");
  const note = (text) => page.locator(".note", { hasText: text });
  /** What the server says of keeping a change. */
  const persisted = async (path, work) => (await Promise.all([page.waitForResponse(path), work()]))[0].headers()["x-persisted"];
  await box("models").check();
  await accessible(page, "models with the box");
  await button(page, "Load other").click();
  assert.equal(await persisted(/other\/load\?persist=true$/, () => page.locator("#dialog button[type=submit]").click()), "written");
  await note("Kept for the next start.").waitFor();
  assert.match(kept(), /\[\[models\]\]\s+(enabled = true\s+name = "other"|name = "other"\s+enabled = true)/);
  assert.equal(await persisted(/other\/unload\?persist=true$/, () => button(page, "Unload other").click()), "written");
  await button(page, "Load other").waitFor();
  assert.doesNotMatch(kept(), /enabled = true/);
  // One box stands for all changes.
  await page.click("a[href='#aliases']");
  assert.equal(await box("aliases").isChecked(), true);
  const save = async () => {
    await page.locator("#dialog button[type=submit]").click();
    await page.locator("#dialog").waitFor({ state: "hidden" });
  };
  await button(page, "New alias").click();
  await page.fill("#field-name", "stays");
  await page.selectOption("#field-target", "slow");
  await save();
  assert.match(kept(), /stays/);
  await button(page, "Change stays").click();
  await save();
  await note("nothing had to be written").waitFor();
  await button(page, "Remove stays").click();
  assert.equal(await persisted(/stays\?persist=true$/, () => button(page, "Remove").click()), "written");
  await page.getByText("There is no alias.").waitFor();
  assert.doesNotMatch(kept(), /stays/);
  await box("aliases").uncheck();
  await button(page, "New alias").click();
  await page.fill("#field-name", "passes");
  await page.selectOption("#field-target", "slow");
  const [asked] = await Promise.all([page.waitForRequest(/aliases\/passes/), save()]);
  assert.equal(new URL(asked.url()).search, "");
  assert.doesNotMatch(kept(), /passes/);
  await elsewhere("DELETE", "aliases/passes");
  await close();
});

test("where changes cannot be kept, nothing offers it", async () => {
  const prepare = (page) =>
    page.route("**/v1/admin/models", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), can_persist: false } });
    });
  const { page, close } = await signedIn("models", { prepare });
  await row(page, "models", "other").waitFor();
  assert.equal(await page.getByLabel("Keep changes for the next start").filter({ visible: true }).count(), 0);
  await close();
});

test("the playground offers models that generate, and sees that one was loaded elsewhere", async () => {
  const { page, close } = await open(ADMIN_API);
  const offered = async () => (await page.locator("#model-0 option").allInnerTexts()).sort();
  assert.deepEqual(await offered(), ["faraway", "other (not loaded)", "slow"]);
  await page.selectOption("#model-0", "slow");
  // What a model does not take is told before it is sent; what is not known is not.
  const files = [{ name: "dot.png", mimeType: "image/png", buffer: Buffer.from("x") }, { name: "hum.wav", mimeType: "audio/wav", buffer: Buffer.from("RIFF") }];
  await page.setInputFiles("#attachments", files);
  await page.locator("#pending .hint", { hasText: "slow takes no images and no recordings." }).waitFor();
  await accessible(page, "files that a model does not take");
  for (const model of ["faraway", "other"]) {
    await page.selectOption("#model-0", model);
    assert.equal(await page.locator("#pending .hint").count(), 0);
  }
  await elsewhere("POST", "models/other/load");
  await page.evaluate(() => dispatchEvent(new Event("focus")));
  await page.locator("#model-0 option", { hasText: /^other$/ }).waitFor({ state: "attached" });
  assert.deepEqual(await offered(), ["faraway", "other", "slow"]);
  assert.equal(await page.inputValue("#model-0"), "other");
  assert.match(await page.locator("#pending .hint").innerText(), /^other takes no images/);
  await elsewhere("POST", "models/other/unload");
  await close();
});
