// The page of the admin side against a hostile server, and with as much as a large one tells.

import assert from "node:assert/strict";
import { test } from "node:test";
import { button, events, json, modelRow, SECTIONS, signedIn } from "./admin.mjs";
import { CORPUS } from "./payloads.mjs";

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
    answers["plugins/bindings"] = named((text) => ({ name: text, kind: text, file: text, models: [text], architectures: [text], tenants: [text], routes: [text], order: 1, on_failure: text, changeable: true, settings: { [text]: text } }));
    answers["plugins/files"] = named((text) => ({ file: text, path: text, present: true }));
    await page.route("**/v1/admin/collections/**", (route) => {
      const found = CORPUS.map((text) => ({ filename: text, score: 0.5, content: [{ text, start: 1, end: 2, page: 1 }] }));
      const files = CORPUS.map((text) => ({ id: text, filename: text, status: text, last_error: { message: text }, progress: { chunks_done: 1, chunks_total: 2 }, usage_bytes: 1, created_at: 1 }));
      return route.fulfill(json({ object: "list", data: route.request().method() === "POST" ? found : files }));
    });
    answers.spend = { currency: CORPUS[0], days: [{ begins_at: 1, accounts: CORPUS.map((text) => ({ account: text, requests: 1, refused: 1, reserved: text, settled: text })) }] };
    await page.route("**/v1/admin/plugins/files/*/versions", (route) => route.fulfill(json(named((text) => ({ digest: text, bytes: 1, signed: true, replaced_at: 1 })))));
    for (const [path, answer] of Object.entries(answers)) await page.route(`**/v1/admin/${path}`, (route) => route.fulfill(json(answer)));
    const told = [
      ["numbers", { requests_ended: 0, requests_failed: 0, generated_tokens: 0, first_token_p50_ms: null, first_token_p95_ms: null, tenants: CORPUS.map((tenant) => ({ tenant, waiting: 1, running: 1 })), models: CORPUS.map((model) => ({ model, in_flight: 0, uses: 0, running: 0, waiting: 0, kv_blocks_used: 0, kv_blocks_total: 0 })) }],
      ["requests", { data: CORPUS.map(request), total: CORPUS.length }],
      ["plugins", { generation: 1, plugins: CORPUS.map((text) => ({ plugin: text, version: text, kind: text, instances: 1, suspended: 1, suspensions: 1, memory_peak_bytes: 1, calls: 1, seconds: 1, faults: { [text]: 1 } })) }],
      ["audit.entry", { at: CORPUS[0], action: CORPUS[0] }],
      ["collections", { object: "list", total: CORPUS.length, data: CORPUS.map((text) => ({ id: text, owner: text, tenant: text, caller: text, name: text, embedding_model: text, status: text, created_at: 1, usage_bytes: 1, chunks: 1, file_counts: { in_progress: 0, completed: 1, failed: 1, total: 2 }, reembedding: { status: text, embedding_model: text, files_done: 1, last_error: { message: text } } })) }],
      ...CORPUS.map((text) => ["model.pull", { id: text, model: text, state: text, file: text, error: text, bytes_done: 1, bytes_total: 2, created_at_ms: 1 }]),
      ["aliases", answers.aliases],
      ["loras", answers.loras],
      ["keys", answers.keys],
      ["quotas", named((text) => ({ id: text, reason: text, quotas: [{ policy: text, name: text, unit: text, shared_by: text, limit: 2, used: 1, remaining: 1, period_ms: 1, resets_at: text }] }))],
      ...CORPUS.map((text) => ["model.circuit", { model: text, circuit: text }]),
      ["model.state", { model: CORPUS[0], state: CORPUS[0], error: CORPUS[0] }],
      ["model.progress", { model: CORPUS[1], state: "loading", stage: CORPUS[1], file: CORPUS[1], bytes_done: 1, bytes_total: 2 }],
    ];
    await page.route("**/v1/admin/events?*", (route) => route.fulfill({ contentType: "text/event-stream", body: events(told) }));
  };
  const { page, close } = await signedIn("overview", { prepare });
  for (const section of SECTIONS) {
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
  for (const label of ["Change", "Unbind"]) {
    await page.locator("#plugins-bindings button", { hasText: label }).first().click();
    await page.waitForSelector("#dialog[open] h2");
    await harmless(page, label);
    await page.keyboard.press("Escape");
  }
  await page.click("a[href='#collections']");
  await page.locator("#collections-table button", { hasText: "Files" }).first().click();
  await page.waitForFunction((most) => document.querySelectorAll("#collections-files tbody tr").length >= most, 100);
  await harmless(page, "files of a collection");
  await page.locator("#collections-table button", { hasText: "Search" }).first().click();
  await page.fill("#field-query", "q");
  await page.click("#dialog button[type=submit]");
  await page.locator(".found li").first().waitFor();
  await harmless(page, "a search");
  await page.keyboard.press("Escape");
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
    // All of it comes once; a stream that is opened anew begins with the present state.
    let rest = told;
    await page.route("**/v1/admin/events?*", (route) => {
      const body = events(rest);
      rest = told.slice(-2);
      return route.fulfill({ contentType: "text/event-stream", body });
    });
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
