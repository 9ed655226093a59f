// Figures of the pages: how long they keep their user waiting while much comes. Nothing asserts on them.

import { test } from "node:test";
import { signedIn } from "./admin.mjs";
import { ADMIN_API, answered, last, open, SCRIPTED } from "./page.mjs";

/**
 * Watch a page from now on: tasks of 50 ms or more and the longest time between two looks of a timer, which other work on the machine
 * makes longer, and the processor time of the page's thread, which it does not.
 */
async function watch(page) {
  await page.evaluate(() => {
    globalThis.long = [];
    globalThis.gap = 0;
    new PerformanceObserver((list) => globalThis.long.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
    let before = performance.now();
    setInterval(() => {
      const now = performance.now();
      globalThis.gap = Math.max(globalThis.gap, now - before - 4);
      before = now;
    }, 4);
  });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const figures = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
  let before = await figures();
  return async (what, more = "") => {
    const { long, gap } = await page.evaluate(() => ({ long: globalThis.long.splice(0), gap: globalThis.gap }));
    const now = await figures();
    const spent = (name) => now[name] - before[name];
    const processor = `${Math.round(1000 * spent("TaskDuration"))} ms of the processor, ${spent("LayoutCount")} layouts`;
    console.log(`${what}: ${processor}; ${long.length} tasks of 50 ms or more, the longest ${Math.round(Math.max(0, ...long))} ms; a timer waited ${Math.round(gap)} ms at most${more}`);
    before = now;
    await page.evaluate(() => (globalThis.gap = 0));
  };
}

for (const [what, model, logprobs] of [["plain text", "text", false], ["Markdown", "markdown", false], ["tokens with probabilities", "text", true]]) {
  test(`10,000 tokens as ${what}`, async () => {
    const { page, close } = await open(SCRIPTED);
    await page.selectOption("#model-0", model);
    await page.fill("#set-max_tokens", "10000");
    if (logprobs) await page.check("#set-logprobs");
    const told = await watch(page);
    await page.fill("#prompt", "Go on");
    await page.keyboard.press("Enter");
    await answered(page);
    // What came last is drawn in the frames that follow.
    await page.waitForTimeout(500);
    await told(`10,000 tokens as ${what}`, `; ${await last(page).locator(".numbers").innerText()}`);
    await close();
  });
}

test("200 models and 1,000 requests a minute", async () => {
  const { page, close } = await signedIn("overview");
  let [sent, ended] = [0, 0];
  const ask = () => {
    const body = JSON.stringify({ model: `model-${sent % 200}`, messages: [{ role: "user", content: "Go on" }] });
    sent++;
    fetch(`${ADMIN_API}v1/chat/completions`, { method: "POST", headers: { "content-type": "application/json" }, body }).then((answer) => answer.text()).then(() => ended++, () => {});
  };
  const load = setInterval(ask, 60);
  const told = await watch(page);
  for (const section of ["overview", "models", "requests"]) {
    await page.click(`a[href='#${section}']`);
    await page.waitForTimeout(15_000);
    const begun = performance.now();
    if (section === "models") {
      await page.fill("#models-filter", "model-199");
      await page.waitForFunction(() => document.querySelectorAll("#models-table tbody tr").length === 1);
    }
    const filtered = section === "models" ? `; 200 rows filtered in ${Math.round(performance.now() - begun)} ms` : "";
    await told(`200 models, 1,000 requests a minute, 15 s of ${section}`, filtered);
  }
  clearInterval(load);
  console.log(`${ended} of ${sent} requests were answered in 45 s`);
  await close();
});
