// The page of the admin side on small screens, in the dark.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SECTIONS, signedIn } from "./admin.mjs";
import { accessible } from "./page.mjs";

for (const [what, viewport] of [["a phone", { width: 360, height: 740 }], ["a narrow window", { width: 800, height: 600 }]]) {
  test(`everything is reached on ${what}`, async () => {
    const { page, close } = await signedIn("overview", { viewport, colorScheme: "dark" });
    for (const section of SECTIONS) {
      await page.click(`a[href='#${section}']`);
      await page.waitForSelector(`#view-${section}:not([hidden]) h1`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${section}: ${wide} pixels too wide`);
      await accessible(page, section);
    }
    await close();
  });
}
