// The page of the admin side as operators use it, wide and narrow, and against a hostile server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CORPUS } from "./payloads.mjs";
import { accessible, ADMIN, ADMIN_API, ADMIN_KEY, open, picture } from "./page.mjs";

/** A page that is signed in, at a section. */
async function signedIn(section = "overview", options = {}) {
  const opened = await open(`${ADMIN}#${section}`, options);
  await opened.page.fill("#key", ADMIN_KEY);
  await opened.page.click("#sign-in button");
  await opened.page.waitForSelector("body[data-live=true]");
  return opened;
}

const row = (page, section, name) => page.locator(`#${section}-table tbody tr`, { hasText: name });

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** A request that goes on until it is cancelled. */
function endless(model) {
  const body = { model, max_tokens: 30_000, messages: [{ role: "user", content: "Go on" }] };
  return fetch(`${ADMIN_API}v1/chat/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

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

test("plugins, adapters and the audit log are shown", async () => {
  const { page, close } = await signedIn("plugins");
  await page.locator("#plugins-serving td", { hasText: "chat-template" }).first().waitFor();
  await button(page, "Read plugins again").click();
  await page.locator(".note", { hasText: "Nothing has changed." }).waitFor();
  await accessible(page, "plugins");
  await page.click("a[href='#adapters']");
  await page.getByText("No model has an adapter.").waitFor();
  await button(page, "Load a folder or file").click();
  await page.fill("#field-lora_id", "a");
  await page.selectOption("#field-base_model", "slow");
  await page.click("#dialog button[type=submit]");
  await page.waitForFunction(() => document.querySelector("#dialog .fault")?.textContent);
  await page.keyboard.press("Escape");
  await page.click("a[href='#audit']");
  await page.locator("#audit-table td", { hasText: "/v1/admin/plugins/reload" }).first().waitFor();
  await accessible(page, "the audit log");
  await close();
});

test("a plugin is examined, sent, replaced, put back and removed", async () => {
  const { page, close } = await signedIn("plugins");
  const send = async (files, more = async () => {}) => {
    for (const [field, file] of Object.entries(files)) await page.setInputFiles(`#field-${field}`, file);
    await more();
    await page.click("#dialog button[type=submit]");
  };
  const plugin = readFileSync(process.env.MORTISE_PLUGIN);
  // Another version: the same with a custom section.
  const versioned = (version) => Buffer.concat([plugin, Buffer.from([0, version.length + 8, 7]), Buffer.from(`version${version}`)]);
  const file = (version) => ({ name: "sums.wasm", mimeType: "application/wasm", buffer: versioned(version) });
  const listed = page.locator("#plugins-files tbody tr", { hasText: "sums.wasm" });
  await button(page, "New plugin file").click();
  await accessible(page, "the form of a plugin");
  await send({ component: { ...file("1.0.0"), buffer: Buffer.from("<script>globalThis.ran=1</script>") } });
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("sums.wasm"));
  await send({ component: file("1.0.0") }, () => page.check("#field-examine"));
  await page.waitForFunction(() => document.querySelector("#dialog .told").textContent.includes("version 1.0.0: it would serve"));
  assert.equal(await listed.count(), 0);
  await send({ signature: { name: "s", mimeType: "application/octet-stream", buffer: Buffer.from("short") } });
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("64 bytes"));
  await page.keyboard.press("Escape");
  await button(page, "New plugin file").click();
  await send({ component: file("1.0.0") });
  await listed.getByText("1.0.0").waitFor();
  await page.locator("#plugins-serving td", { hasText: "sums 1.0.0" }).waitFor();
  await button(page, "Replace sums.wasm").click();
  await send({ component: file("2.0.0") });
  await listed.getByText("2.0.0").waitFor();
  await button(page, "Versions of sums.wasm").click();
  await accessible(page, "the versions of a plugin");
  await picture(page, "plugin-versions");
  await page.locator("#dialog .versions button").click();
  await listed.getByText("1.0.0").waitFor();
  await button(page, "Remove sums.wasm").click();
  await button(page, "Remove").click();
  await listed.getByText("removed").waitFor();
  assert.equal(await page.locator("#plugins-serving td", { hasText: "sums" }).count(), 0);
  await accessible(page, "plugins with files");
  await page.click("a[href='#audit']");
  await page.locator("#audit-table td", { hasText: "DELETE /v1/admin/plugins/files/sums.wasm" }).first().waitFor();
  await close();
});

for (const [what, viewport] of [["a phone", { width: 360, height: 740 }], ["a narrow window", { width: 800, height: 600 }]]) {
  test(`everything is reached on ${what}`, async () => {
    const { page, close } = await signedIn("overview", { viewport, colorScheme: "dark" });
    for (const section of ["overview", "models", "aliases", "adapters", "requests", "plugins", "keys", "audit"]) {
      await page.click(`a[href='#${section}']`);
      await page.waitForSelector(`#view-${section}:not([hidden]) h1`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${section}: ${wide} pixels too wide`);
      await accessible(page, section);
    }
    await close();
  });
}

const json = (value) => ({ contentType: "application/json", body: JSON.stringify(value) });

const modelRow = (name, more = {}) => ({
  name, aliases: [name], resolved_backend: name, architecture: name, runtime_state: "unloaded", is_loaded: false, pinned: false, hidden: false, inflight_requests: 0,
  queue_depth: 0, runtime_inflight: 0, usage_count: 0, last_error: name, progress: null, vram_estimate_mib: 1, context_length: 1, load_time_ms: null,
  load_constraints: { [name]: { kind: "choice", allowed_values: [name], null_means: name } }, ...more,
});

/** Events of a server, one after another, and then a stream that stays open. */
const events = (all) => all.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");

test("what a hostile server writes into any field stays text", async () => {
  assert.ok(CORPUS.length >= 100, `${CORPUS.length}`);
  const named = (make) => ({ object: "list", data: CORPUS.map(make) });
  const request = (text) => ({ id: text, model: text, subject: text, tenant: text, state: text, age_ms: 1, queued_ms: null, first_token_ms: null, prompt_tokens: 1, completion_tokens: 1 });
  const prepare = async (page) => {
    const answers = {
      "openapi.json": { info: { version: CORPUS[0] } },
      models: named((text) => modelRow(text)),
      aliases: named((text) => ({ name: text, target: text, canary: { target: text, percent: 1, tenants: [text] }, previous: { target: text, canary: null }, targets: { [text]: { requests: 1, errors: 1, mean_latency_ms: 1 } } })),
      loras: { loras: CORPUS.map((text) => ({ lora_id: text, base_model: text, path: text, status: text, rank: 1, size_bytes: 1, usage_count: 1, last_error: text })) },
      keys: named((text) => ({ id: text, tenant: text, state: text, created_at: 1, expires_at: null, disabled: false, secrets: 2, terms: { models: [text], [text]: [text] } })),
      audit: named((text) => ({ at: text, action: text, outcome: text, method: text, path: text, peer: text, [text]: text })),
      plugins: {
        generation: 1,
        serving: CORPUS.map((text) => ({ kind: text, model: text, models: [text], tenants: [text], routes: [text], plugin: text, version: text, origin: text })),
        files: CORPUS.map((text) => ({ file: text, version: text, built_against: text, digest: text, kinds: [text] })),
        rejected: CORPUS.map((text) => ({ file: text, reason: text })),
        error: CORPUS[0],
        breakdowns: CORPUS.map((text) => ({ at: text, plugin: text, version: text, function: text, request_id: text, text, printed: text })),
      },
    };
    answers.pulls = answers.library = named((text) => ({ id: text, name: text, model: text, state: text, file: text, error: text, bytes_done: 1, bytes_total: 2, created_at_ms: 1 }));
    answers["plugins/files"] = named((text) => ({ file: text, path: text, present: true }));
    await page.route("**/v1/admin/plugins/files/*/versions", (route) => route.fulfill(json(named((text) => ({ digest: text, bytes: 1, signed: true, replaced_at: 1 })))));
    for (const [path, answer] of Object.entries(answers)) await page.route(`**/v1/admin/${path}`, (route) => route.fulfill(json(answer)));
    const told = [
      ["numbers", { requests_ended: 0, requests_failed: 0, generated_tokens: 0, first_token_p50_ms: null, first_token_p95_ms: null, tenants: CORPUS.map((tenant) => ({ tenant, waiting: 1, running: 1 })), models: CORPUS.map((model) => ({ model, in_flight: 0, uses: 0, running: 0, waiting: 0, kv_blocks_used: 0, kv_blocks_total: 0 })) }],
      ["requests", { data: CORPUS.map(request), total: CORPUS.length }],
      ["plugins", { generation: 1, plugins: CORPUS.map((text) => ({ plugin: text, version: text, kind: text, instances: 1, suspended: 1, suspensions: 1, memory_peak_bytes: 1, calls: 1, seconds: 1, faults: { [text]: 1 } })) }],
      ["audit.entry", { at: CORPUS[0], action: CORPUS[0] }],
      ...CORPUS.map((text) => ["model.pull", { id: text, model: text, state: text, file: text, error: text, bytes_done: 1, bytes_total: 2, created_at_ms: 1 }]),
      ["model.state", { model: CORPUS[0], state: CORPUS[0], error: CORPUS[0] }],
      ["model.progress", { model: CORPUS[1], state: "loading", stage: CORPUS[1], file: CORPUS[1], bytes_done: 1, bytes_total: 2 }],
    ];
    await page.route("**/v1/admin/events?*", (route) => route.fulfill({ contentType: "text/event-stream", body: events(told) }));
  };
  const { page, close } = await signedIn("overview", { prepare });
  for (const section of ["overview", "models", "aliases", "adapters", "requests", "plugins", "keys", "audit"]) {
    await page.click(`a[href='#${section}']`);
    await page.waitForFunction((section) => document.querySelectorAll(`#view-${section} tbody tr`).length >= 100, section);
    await harmless(page, section);
  }
  // Forms and messages have the names in them too.
  await page.click("a[href='#plugins']");
  for (const label of ["Replace", "Versions"]) {
    await page.locator("#plugins-files button", { hasText: label }).first().click();
    await page.waitForSelector("#dialog[open] h2");
    await harmless(page, label);
    await page.keyboard.press("Escape");
  }
  await page.click("a[href='#models']");
  await page.locator("#models-table button", { hasText: "Load" }).first().click();
  await harmless(page, "a form");
  await page.keyboard.press("Escape");
  const message = CORPUS.join("\n");
  await page.route("**/v1/admin/models/rescan", (route) => route.fulfill({ status: 400, ...json({ error: { message, code: CORPUS[0] } }) }));
  await button(page, "Rescan folders").click();
  await page.locator(".note.error").first().waitFor();
  await harmless(page, "a refusal");
  await close();
});

/** No payload has become anything but text. */
async function harmless(page, what) {
  const found = await page.evaluate(() => {
    const bad = [];
    for (const element of document.querySelectorAll("main *, #dialog *, #notes *, #sidebar *")) {
      const name = element.tagName.toLowerCase();
      if (/^(script|iframe|object|embed|math|style|link|base|meta|video|audio|template|marquee|xss)$/.test(name)) bad.push(name);
      if (name === "img" && !element.src.endsWith("/page/icon.svg")) bad.push("img");
      for (const { name: attribute } of element.attributes) {
        if (attribute.startsWith("on") || ["style", "srcdoc", "formaction"].includes(attribute)) bad.push(`${name} ${attribute}`);
      }
      if (name === "a" && !element.getAttribute("href").startsWith("#")) bad.push(element.href);
    }
    return bad;
  });
  assert.deepEqual(found, [], what);
}

test("200 models and a thousand requests a minute leave the page usable", async () => {
  const names = Array.from({ length: 200 }, (_, at) => `model-${at}`);
  const prepare = async (page) => {
    await page.route("**/v1/admin/models", (route) => route.fulfill(json({ object: "list", data: names.map((name) => modelRow(name, { last_error: null, runtime_state: "loaded", load_time_ms: 1 })) })));
    // The stream tells in three minutes' worth of events what the page takes in at once.
    const tick = (second) => [
      ["numbers", { requests_ended: second * 17, requests_failed: 0, generated_tokens: second * 1700, first_token_p50_ms: 20, first_token_p95_ms: 50, tenants: [{ tenant: "t", waiting: second, running: second }], models: names.map((model, at) => ({ model, in_flight: at, uses: second, running: at, waiting: second, kv_blocks_used: at, kv_blocks_total: 200 })) }],
      ["requests", { data: Array.from({ length: 200 }, (_, at) => ({ id: `r${second * 17 + at}`, model: names[at], subject: "s", tenant: "t", state: "running", age_ms: at, queued_ms: 1, first_token_ms: 1, prompt_tokens: 1, completion_tokens: second })), total: 300 }],
    ];
    const told = Array.from({ length: 180 }, (_, second) => tick(second)).flat();
    await page.route("**/v1/admin/events?*", (route) => route.fulfill({ contentType: "text/event-stream", body: events(told) }));
  };
  const { page, close } = await signedIn("models", { prepare });
  await page.waitForFunction(() => document.querySelectorAll("#models-table tbody tr").length === 200);
  await page.fill("#models-filter", "model-199");
  await page.waitForFunction(() => document.querySelectorAll("#models-table tbody tr").length === 1);
  await page.click("a[href='#requests']");
  await page.waitForFunction(() => document.querySelectorAll("#requests-table tbody tr").length === 200);
  assert.equal(await page.locator("#requests-count").innerText(), "the oldest 200 of 300");
  // Only what is shown is drawn, and a table has as many rows as there are things in it.
  assert.ok((await page.locator("tr").count()) < 1000);
  await close();
});
