// A page of the playground in a real browser, watched: what it logs, what it asks for, what its policy stopped.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after } from "node:test";
import { chromium } from "playwright-core";

export const DEMO = process.env.MORTISE_DEMO_URL;
export const SCRIPTED = process.env.MORTISE_SCRIPTED_URL;
export const PLAIN = process.env.MORTISE_PLAIN_URL;
export const ADMIN = process.env.MORTISE_ADMIN_URL;
export const ADMIN_API = process.env.MORTISE_ADMIN_API_URL;
export const ADMIN_KEY = process.env.MORTISE_ADMIN_KEY;

const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** Nothing is drawn by a GPU or one that is emulated, and nothing is fetched beside the page. */
const FLAGS = ["--disable-gpu", "--disable-software-rasterizer", "--disable-extensions", "--disable-background-networking"];

/** A name by which this machine is another one: pages at it have no secure context. */
const ELSEWHERE = "--host-resolver-rules=MAP mortise.test 127.0.0.1";

const browser = await chromium.launch({
  executablePath: process.env.MORTISE_CHROMIUM,
  // Tests may run as root, where Chromium has no sandbox.
  args: ["--no-sandbox", ELSEWHERE, ...FLAGS],
});
after(() => browser.close());

/** Statuses of refusals, which Chromium tells as errors of the console too. */
const REFUSAL = /the server responded with a status of (400|401|403|404|422)/;

/** What Chromium says of a header that it takes over https only. */
const UNTRUSTED = /Cross-Origin-Opener-Policy header has been ignored, because the URL's origin was untrustworthy/;

/** A page at `url`, ready; `prepare` is called before it is loaded. */
export async function open(url, { prepare, ...options } = {}) {
  // Axe is more code than the page's policy takes; all that runs in the page itself is under the policy.
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const seen = { problems: [], elsewhere: [] };
  page.on("console", (message) => {
    const told = [REFUSAL, UNTRUSTED].some((known) => known.test(message.text()));
    if (["error", "warning"].includes(message.type()) && !told) seen.problems.push(message.text());
  });
  page.on("pageerror", (error) => seen.problems.push(String(error)));
  page.on("dialog", (dialog) => {
    seen.problems.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) seen.elsewhere.push(request.url());
  });
  await page.addInitScript(() => {
    globalThis.stopped = [];
    addEventListener("securitypolicyviolation", (event) => globalThis.stopped.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await prepare?.(page);
  await page.goto(url);
  await page.waitForSelector("body[data-ready]");
  return { page, seen, close: () => clean(page, seen) };
}

/** The page logged no error, asked no other server, did nothing that its policy forbids, and none of its texts ran. */
async function clean(page, seen) {
  assert.deepEqual(seen.problems, []);
  assert.deepEqual(seen.elsewhere.filter((url) => !url.startsWith("blob:")), []);
  assert.deepEqual(await page.evaluate(() => globalThis.stopped), []);
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  await page.context().close();
}

/** Keep a picture of the page, where `MORTISE_PICTURES` names a folder. */
export async function picture(page, name) {
  const folder = process.env.MORTISE_PICTURES;
  if (folder) await page.screenshot({ path: `${folder}/${name}.png` });
}

/** Send a message, and wait until all answers are there. */
export async function say(page, text) {
  await page.fill("#prompt", text);
  await page.keyboard.press("Enter");
  await answered(page);
}

/** Wait until nothing is being answered. */
export const answered = (page) => page.waitForFunction(() => document.getElementById("stop").hidden);

/** The last answer. */
export const last = (page) => page.locator(".message.assistant").last();

/** No finding of axe is serious. */
export async function accessible(page, what) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  // All rules run; what passes is not gathered, and no style sheet is fetched anew.
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"], preload: false }));
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("; ")}`);
  assert.deepEqual(told, [], what);
}
