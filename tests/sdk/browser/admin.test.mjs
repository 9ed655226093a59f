// The page of the admin side as operators use it: models, aliases, keys and requests.

import assert from "node:assert/strict";
import { test } from "node:test";
import { button, endless, json, row, signedIn } from "./admin.mjs";
import { accessible, ADMIN, ADMIN_API, ADMIN_KEY, last, open, picture, say } from "./page.mjs";

test("the page asks for the key, keeps it in the tab, and forgets it", async () => {
  const { page, close } = await open(ADMIN);
  await accessible(page, "the question for the key");
  await page.fill("#key", "a wrong key of sixteen bytes");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("key-fault").textContent.includes("not the key"));
  await page.fill("#key", ADMIN_KEY);
  await page.keyboard.press("Enter");
  await page.waitForSelector("body[data-live=true]");
  assert.deepEqual(await page.evaluate(() => [localStorage.length, document.cookie]), [0, ""]);
  await page.reload();
  await page.waitForSelector("body[data-live=true]");
  await button(page, "Sign out").click();
  await page.waitForSelector("#sign-in:not([hidden])");
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await close();
});

test("graphs and requests are live, and a request is cancelled", async () => {
  const { page, close } = await signedIn();
  const answer = endless("slow");
  await page.waitForFunction(() => document.querySelector("#overview-models")?.textContent.includes("slow"));
  await page.waitForFunction(() => document.querySelectorAll(".chart polyline.first[points*=' ']").length >= 3);
  await page.locator("#overview-tenants tbody tr").waitFor();
  await accessible(page, "the overview");
  await picture(page, "admin");
  await page.click("a[href='#requests']");
  const listed = row(page, "requests", "slow");
  await listed.waitFor();
  await accessible(page, "requests");
  await listed.getByRole("button").click();
  const refused = await answer;
  assert.equal(refused.status, 403);
  assert.equal((await refused.json()).error.code, "request_cancelled");
  await listed.waitFor({ state: "detached" });
  await close();
});

test("models are filtered, loaded with settings, and unloaded", async () => {
  const { page, close } = await signedIn("models");
  await page.fill("#models-filter", "unloaded");
  await page.waitForFunction(() => document.querySelectorAll("#models-table tbody tr").length === 1);
  await row(page, "models", "other").waitFor();
  await page.fill("#models-filter", "other");
  await button(page, "Load other").click();
  await page.fill("#field-replicas", "2");
  await accessible(page, "the settings of a load");
  await page.keyboard.press("Enter");
  await row(page, "models", "other").getByText("loaded", { exact: true }).waitFor();
  await button(page, "Details of other").click();
  assert.match(await page.locator("#dialog pre").first().innerText(), /"loaded_replicas": 2/);
  await button(page, "Close").click();
  await button(page, "Unload other").click();
  await button(page, "Load other").waitFor();
  // What the server refuses is told in its own words.
  await button(page, "Load other").click();
  await page.fill("#field-replicas", "two");
  await page.locator("#dialog button[type=submit]").click();
  await page.locator("#dialog .fault", { hasText: "whole number" }).waitFor();
  await page.fill("#field-replicas", "100000");
  await page.locator("#dialog button[type=submit]").click();
  await page.locator("#dialog .fault", { hasText: "replicas" }).waitFor();
  await page.fill("#field-replicas", "");
  await page.selectOption("#field-pinned", "true");
  await page.locator("#dialog button[type=submit]").click();
  await button(page, "Details of other").waitFor();
  await row(page, "models", "other").getByText("loaded", { exact: true }).waitFor();
  await row(page, "models", "other").getByText("pinned").waitFor();
  await button(page, "Unload other").click();
  await button(page, "Load other").click();
  await page.keyboard.press("Escape");
  await page.fill("#models-filter", "");
  await button(page, "Rescan folders").click();
  await page.locator(".note", { hasText: "new models" }).waitFor();
  await button(page, "Read settings again").click();
  await page.locator(".note", { hasText: "Models: 0 added" }).waitFor();
  await accessible(page, "models");
  await close();
});

test("models are pulled with progress, cancelled and removed", async () => {
  const pull = (more) => ({ id: "p1", model: "org/name", state: "downloading", file: "model.gguf", bytes_done: 0, bytes_total: 4096, bytes_received: 0, error: null, created_at_ms: 1, ended_at_ms: null, ...more });
  let [library, asked] = [[], []];
  const prepare = async (page) => {
    // The server of the tests has no library, and no hub to pull from.
    await page.route("**/v1/admin/library", (route) => route.fulfill(json({ object: "list", data: library })));
    await page.route("**/v1/admin/pulls", (route) => {
      if (route.request().method() === "GET") return route.fulfill(json({ object: "list", data: [] }));
      asked.push(route.request().postDataJSON());
      return route.fulfill({ status: 202, ...json(pull({ bytes_done: 1024 })) });
    });
    await page.route("**/v1/admin/pulls/p1", (route) => {
      asked.push(route.request().method());
      return route.fulfill(json(pull({ state: "cancelling" })));
    });
    await page.route("**/v1/admin/models/other", (route) => {
      if (route.request().method() !== "DELETE") return route.continue();
      asked.push("removed");
      library = [];
      return route.fulfill(json({ name: "other", deleted: true }));
    });
  };
  const { page, close } = await signedIn("models", { prepare });
  await button(page, "Pull from the hub").click();
  await accessible(page, "the form of a pull");
  await page.fill("#field-model", "org/name");
  await page.keyboard.press("Enter");
  const listed = row(page, "pulls", "org/name");
  await listed.getByText("model.gguf, 1 KiB of 4 KiB").waitFor();
  assert.deepEqual(asked, [{ model: "org/name" }]);
  await accessible(page, "pulls");
  await button(page, "Cancel the pull of org/name").click();
  await page.locator(".note", { hasText: "is cancelled" }).waitFor();
  assert.equal(asked[1], "DELETE");
  library = [{ name: "other" }];
  await page.click("a[href='#keys']");
  await page.click("a[href='#models']");
  await button(page, "Remove other").click();
  await button(page, "Remove").click();
  await button(page, "Remove other").waitFor({ state: "detached" });
  assert.equal(asked[2], "removed");
  await close();
});

test("a model is pulled, loaded, asked and removed", async () => {
  const begun = performance.now();
  const { page, close } = await signedIn("models");
  const failed = row(page, "pulls", "org/absent").getByText("failed");
  // The event that a pull has ended overtakes the answer to its beginning.
  await page.route("**/v1/admin/pulls", async (route) => {
    const response = await route.fetch();
    await failed.waitFor();
    await route.fulfill({ response });
  });
  await button(page, "Pull from the hub").click();
  await page.fill("#field-model", "org/absent");
  await page.keyboard.press("Enter");
  await page.locator("#dialog").waitFor({ state: "hidden" });
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  assert.ok(await failed.isVisible());
  await page.unroute("**/v1/admin/pulls");
  await button(page, "Pull from the hub").click();
  await page.fill("#field-model", "org/tiny");
  await page.keyboard.press("Enter");
  await row(page, "pulls", "org/tiny").getByText("completed").waitFor();
  await button(page, "Load org/tiny").click();
  await page.locator("#dialog button[type=submit]").click();
  await row(page, "models", "org/tiny").getByText("loaded", { exact: true }).waitFor();
  const asked = await open(ADMIN_API);
  await asked.page.selectOption("#model-0", "org/tiny");
  await say(asked.page, "What is mortise?");
  assert.match(await last(asked.page).locator(".text").innerText(), /mortise is/);
  console.log(`from the page to an answer of a pulled model: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  await asked.close();
  await button(page, "Unload org/tiny").click();
  await button(page, "Remove org/tiny").click();
  await button(page, "Remove").click();
  await row(page, "models", "org/tiny").waitFor({ state: "detached" });
  await close();
});

test("aliases are made, changed, rolled back and removed", async () => {
  const { page, close } = await signedIn("aliases");
  await button(page, "New alias").click();
  await page.fill("#field-name", "prod");
  await page.selectOption("#field-target", "slow");
  await page.click("#dialog button[type=submit]");
  await row(page, "aliases", "prod").waitFor();
  await button(page, "Change prod").click();
  await page.selectOption("#field-canary", "other");
  await page.fill("#field-percent", "10");
  await page.fill("#field-tenants", "lab, shop");
  await accessible(page, "the form of an alias");
  await page.click("#dialog button[type=submit]");
  await page.getByText("slow; 10 % and lab, shop to other").waitFor();
  await button(page, "Roll back prod").click();
  await page.locator("#aliases-table td:nth-child(2)", { hasText: /^slow$/ }).waitFor();
  await button(page, "Remove prod").click();
  await button(page, "Remove").click();
  await page.getByText("There is no alias.").waitFor();
  await close();
});

test("keys are issued, changed, rotated, revoked and deleted", async () => {
  const { page, close } = await signedIn("keys");
  await button(page, "New key").click();
  await page.fill("#field-id", "ann");
  await page.fill("#field-tenant", "acme");
  await page.fill("#field-models", "slow, other");
  await page.fill("#field-requests_per_minute", "60");
  await accessible(page, "the form of a key");
  await page.click("#dialog button[type=submit]");
  const secret = await page.locator("#secret").innerText();
  assert.ok(secret.length > 20, secret);
  await button(page, "Close").click();
  await page.getByText("models: slow, other; requests per minute: 60").waitFor();
  assert.ok(!(await page.content()).includes(secret));
  await button(page, "Change ann").click();
  await page.fill("#field-requests_per_minute", "");
  await page.click("#dialog button[type=submit]");
  await page.locator("#keys-table td", { hasText: /^models: slow, other$/ }).waitFor();
  await button(page, "Rotate ann").click();
  await page.fill("#field-overlap_seconds", "60");
  await page.click("#dialog button[type=submit]");
  assert.notEqual(await page.locator("#secret").innerText(), secret);
  await button(page, "Close").click();
  await page.getByText("2 secrets are taken").waitFor();
  await accessible(page, "keys");
  await button(page, "Revoke ann").click();
  await button(page, "Revoke").click();
  await page.getByText("revoked", { exact: true }).waitFor();
  await button(page, "Delete ann").click();
  await button(page, "Delete").click();
  await page.getByText("No key has been issued here.").waitFor();
  await close();
});

test("collections are made, filled, searched, given new vectors and deleted", async () => {
  const { page, close } = await signedIn("collections");
  await page.getByText("No caller has a collection.").waitFor();
  await button(page, "New collection").click();
  await page.fill("#field-name", "papers");
  await page.fill("#field-tenant", "acme");
  await page.fill("#field-embedding_model", "absent");
  await accessible(page, "the form of a collection");
  await page.click("#dialog button[type=submit]");
  // What the server refuses is told in its own words.
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("absent"));
  await page.fill("#field-embedding_model", "");
  await page.click("#dialog button[type=submit]");
  const listed = row(page, "collections", "papers");
  await listed.getByText("acme").waitFor();
  await button(page, "Files of papers").click();
  await button(page, "Add a document to papers").click();
  await page.setInputFiles("#field-document", { name: "clauses.md", mimeType: "text/markdown", buffer: Buffer.from("# Term\n\nThe zebra agreement ends after a year.\n") });
  await page.click("#dialog button[type=submit]");
  const file = page.locator("#collections-files tbody tr", { hasText: "clauses.md" });
  await file.getByText("completed").waitFor();
  await listed.getByText("ready").waitFor();
  await accessible(page, "collections");
  await picture(page, "admin-collections");
  await button(page, "Search papers").click();
  await page.fill("#field-query", "zebra");
  await page.keyboard.press("Enter");
  const found = page.locator(".found li").first();
  await found.getByText("clauses.md").waitFor();
  assert.match(await found.innerText(), /bytes \d+ to \d+[^]*zebra/);
  await accessible(page, "a search");
  await button(page, "Cancel").click();
  await button(page, "New vectors of papers").click();
  await page.fill("#field-embedding_model", "slow");
  await page.click("#dialog button[type=submit]");
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("makes no embeddings"));
  await page.fill("#field-embedding_model", "embeds");
  await page.click("#dialog button[type=submit]");
  await listed.getByText("made anew").waitFor();
  await button(page, "Take out clauses.md").click();
  await button(page, "Take out").click();
  await page.getByText("The collection has no file.").waitFor();
  await button(page, "Delete papers").click();
  await button(page, "Delete").click();
  await page.getByText("No caller has a collection.").waitFor();
  await close();
});
