// Memory of GPUs and queues by tenant on the page of the admin side.

import assert from "node:assert/strict";
import { test } from "node:test";
import { endless, json, signedIn } from "./admin.mjs";
import { accessible, ADMIN_API, ADMIN_KEY } from "./page.mjs";

test("the reason stands where memory would, in the server's words", async () => {
  const { page, close } = await signedIn("overview");
  const admin = new URL(page.url());
  const answer = await fetch(new URL("v1/admin/gpu-memory", admin), { headers: { "x-admin-token": ADMIN_KEY } });
  const { gpus, error } = await answer.json();
  await page.waitForFunction((count) => document.querySelectorAll("#overview-gpus tbody tr").length === count, gpus.length);
  await page.waitForFunction((why) => document.getElementById("gpus-why").textContent === why, error ?? "");
  assert.ok(gpus.length > 0 || error, "one of both is told");
  await close();
});

test("memory is shown, and read again when a model comes or goes", async () => {
  let used = 1024;
  const gpus = () => [{ index: 0, name: "NVIDIA H100", used_mib: used, total_mib: 4096 }, { index: 1, name: "Old card", used_mib: null, total_mib: 2048 }];
  const prepare = (page) => page.route("**/v1/admin/gpu-memory", (route) => route.fulfill(json({ gpus: gpus(), models: [], error: null })));
  const { page, close } = await signedIn("overview", { prepare });
  const cells = (row) => page.locator("#overview-gpus tbody tr").nth(row).locator("td").allInnerTexts();
  await page.locator("#overview-gpus tbody tr").nth(1).waitFor();
  assert.deepEqual(await cells(0), ["0: NVIDIA H100", "1 GiB", "4 GiB"]);
  assert.deepEqual(await cells(1), ["1: Old card", "–", "2 GiB"]);
  await accessible(page, "memory of GPUs");
  used = 2048;
  const body = JSON.stringify({ model: "other" });
  const headers = { "content-type": "application/json", "x-admin-token": ADMIN_KEY };
  const loaded = await fetch(new URL("v1/models/load", page.url()), { method: "POST", headers, body });
  assert.equal(loaded.status, 200, ADMIN_API);
  await page.locator("#overview-gpus tbody tr").first().getByText("2 GiB").waitFor();
  await close();
});

test("queues are listed by tenant, and read again when requests come and go", async () => {
  const tenant = (account, more) => ({ account, weight: 1, entitled: 2.5, running: 0, waiting: 0, waiting_tokens: 0, preempted: 0, kv_blocks: 0, computed_tokens: 1200, dequeued: 1, waited_ms_mean: null, ...more });
  let waiting = 3;
  const queues = () => ({ object: "list", data: [{ model: "big", tenants: [tenant("tenant acme", { waiting, waited_ms_mean: 1500 }), tenant(null, { running: 1 })], tenants_total: 2 }] });
  const prepare = (page) => page.route("**/v1/admin/queues", (route) => route.fulfill(json(queues())));
  const { page, close } = await signedIn("overview", { prepare });
  const rows = page.locator("#overview-queues tbody tr");
  await rows.nth(1).waitFor();
  assert.deepEqual(await rows.nth(0).locator("td").allInnerTexts(), ["big", "tenant acme", "1", "2.5", "0", "3", "0", "1,200", "1.5 s"]);
  assert.deepEqual(await rows.nth(1).locator("td").allInnerTexts(), ["big", "(none)", "1", "2.5", "1", "0", "0", "1,200", "–"]);
  await accessible(page, "queues by tenant");
  waiting = 4;
  const answer = endless("slow");
  await rows.nth(0).locator("td", { hasText: /^4$/ }).waitFor();
  await page.click("a[href='#requests']");
  await page.locator("#requests-table tbody tr", { hasText: "slow" }).getByRole("button").click();
  assert.equal((await answer).status, 403);
  await close();
});
