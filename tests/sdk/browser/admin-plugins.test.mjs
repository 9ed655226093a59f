// Plugins, adapters and the audit log on the page of the admin side.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { button, row, signedIn } from "./admin.mjs";
import { accessible, picture } from "./page.mjs";

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

test("a plugin is bound to a model, bound anew and unbound", async () => {
  const { page, close } = await signedIn("plugins");
  await page.getByText("No binding; plugins serve as they lie in the folder.").waitFor();
  await button(page, "New plugin file").click();
  await page.setInputFiles("#field-component", { name: "sums.wasm", mimeType: "application/wasm", buffer: readFileSync(process.env.MORTISE_PLUGIN) });
  await page.click("#dialog button[type=submit]");
  await page.locator("#plugins-files tr", { hasText: "sums.wasm" }).getByText("tool").waitFor();
  await button(page, "Bind a plugin").click();
  await accessible(page, "the form of a binding");
  await page.fill("#field-name", "counting");
  await page.selectOption("#field-kind", "tool");
  await page.selectOption("#field-file", "sums.wasm");
  await page.fill("#field-models", "slow, acme-*");
  await page.fill("#field-settings", "{");
  await page.click("#dialog button[type=submit]");
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("must be JSON"));
  await page.fill("#field-settings", "");
  await page.click("#dialog button[type=submit]");
  const bound = page.locator("#plugins-bindings tbody tr", { hasText: "counting" });
  await bound.getByText("slow, acme-*").waitFor();
  await accessible(page, "bindings");
  await button(page, "Change the binding counting").click();
  assert.equal(await page.inputValue("#field-file"), "sums.wasm");
  await page.fill("#field-models", "");
  await page.fill("#field-routes", "v1");
  await page.click("#dialog button[type=submit]");
  // What the server refuses is told in its own words, and changes nothing.
  await page.waitForFunction(() => document.querySelector("#dialog .fault").textContent.includes("a route begins with"));
  await page.fill("#field-routes", "/v1/chat/*");
  await page.click("#dialog button[type=submit]");
  await bound.getByText("/v1/chat/*").waitFor();
  await button(page, "Unbind counting").click();
  await button(page, "Unbind").click();
  await bound.waitFor({ state: "detached" });
  await close();
});
