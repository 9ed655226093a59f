// Answers of 10,000 tokens: how much work their drawing is, counted and not timed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { last, open, SCRIPTED } from "./page.mjs";

/** Only a run that fails waits so long. */
const PATIENCE = { timeout: 180_000 };

/**
 * Changes of an answer that are counted, whatever the pace of the machine: how often it was drawn, and the characters and nodes that were put into it. An
 * answer that is drawn anew each time puts in, on average, half of all its characters each time.
 */
async function count(page) {
  await page.evaluate(() => {
    globalThis.work = { draws: 0, characters: 0, nodes: 0 };
    const size = (node) => 1 + [...node.childNodes].reduce((all, child) => all + size(child), 0);
    const seen = (records) => {
      globalThis.work.draws++;
      for (const { type, target, addedNodes, oldValue } of records) {
        if (type === "characterData") globalThis.work.characters += Math.max(0, target.data.length - oldValue.length);
        for (const node of addedNodes) {
          globalThis.work.characters += node.textContent.length;
          globalThis.work.nodes += size(node);
        }
      }
    };
    new MutationObserver(seen).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true, characterDataOldValue: true });
  });
}

/** Times that each character and node of the answer may be put in, beside the last block, which is drawn again while it grows. */
const TIMES = 4;
/** Characters and nodes of a block of these answers, with room to spare, and of the figures below the answer. */
const BLOCK = { characters: 150, nodes: 80 };

/** Answers: some of many blocks, and some of a single one, which is its last block from the first token to the last. */
const ANSWERS = [
  ["plain text", "text", false],
  ["Markdown", "markdown", false],
  ["one paragraph", "paragraph", false],
  ["one paragraph of Markdown", "spans", false],
  ["one block of code", "code", false],
  ["tokens with probabilities", "text", true],
];

for (const [what, model, logprobs] of ANSWERS) {
  test(`10,000 tokens as ${what} are drawn a few times each`, async () => {
    const { page, close } = await open(SCRIPTED);
    await page.selectOption("#model-0", model);
    await page.fill("#set-max_tokens", "10000");
    if (logprobs) await page.check("#set-logprobs");
    await count(page);
    await page.fill("#prompt", "Go on");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.getElementById("stop").hidden);
    await page.waitForFunction(() => document.getElementById("stop").hidden, null, PATIENCE);
    // What came last is drawn in the frames that follow.
    const whole = () => globalThis.before === (globalThis.before = document.querySelector(".message.assistant:last-of-type")?.textContent.length);
    await page.waitForFunction(whole, null, { polling: 500 });
    const answer = await last(page).evaluate((element) => {
      const size = (node) => 1 + [...node.childNodes].reduce((all, child) => all + size(child), 0);
      return { characters: element.textContent.length, nodes: size(element) };
    });
    const work = await page.evaluate(() => globalThis.work);
    console.log(`10,000 tokens as ${what}: ${work.characters} characters and ${work.nodes} nodes in ${work.draws} draws, for an answer of ${answer.characters} and ${answer.nodes}`);
    assert.match(await last(page).locator(".numbers").innerText(), /10,?000/);
    assert.ok(answer.characters > 2_500, `${answer.characters} characters`);
    const blocks = await last(page).locator(".text > *").count();
    assert.ok(["paragraph", "spans", "code"].includes(model) ? blocks === 1 : blocks !== 1, `${blocks} blocks`);
    assert.ok(work.draws <= 10_000, `${work.draws} draws of 10,000 tokens`);
    for (const name of ["characters", "nodes"]) {
      const most = TIMES * answer[name] + BLOCK[name] * work.draws;
      assert.ok(work[name] <= most, `${work[name]} ${name} were put in; ${most} are expected at most for ${answer[name]} in ${work.draws} draws`);
    }
    await close();
  });
}

/** Numbers from 0 to 1, the same in each run. */
function numbers(seed) {
  let at = seed;
  return () => (at = (Math.imul(at, 1_103_515_245) + 12_345) & 0x7fff_ffff) / 0x7fff_ffff;
}

test("Markdown that comes in pieces looks as if it had come at once", async () => {
  const parts = [
    "a", "b ", "word ", "*", "**", "_", "__", "~~", "`", "``", "```", "```js\n", "\n", "\n\n", "\n", "- ", "1. ", "# ", "> ", "| ", "|", "|---|---|\n", "|-", "---",
    "http://a.b/c", "https://x.y", " h", "ht", "[", "](", "](http://q.r)", ")", "!", "![", "\\", "\\*", "  ", " ", "12", "1)", "+", ":", ".", "é", "name_like_this", "2 * 3", "<b>",
    "so it goes on. ".repeat(80),
  ];
  const texts = Array.from({ length: 1000 }, (_, seed) => {
    const next = numbers(seed + 1);
    const one = () => parts[Math.floor(next() * parts.length)];
    const text = Array.from({ length: 1 + Math.floor(next() * 40) }, one).join("");
    const pieces = [];
    for (let at = 0; at < text.length; at = pieces.at(-1)) pieces.push(Math.min(text.length, at + 1 + Math.floor(next() * (seed % 2 ? 7 : 60))));
    return [text, pieces];
  });
  const { page, close } = await open(SCRIPTED);
  const differing = await page.evaluate(async (texts) => {
    const { Markdown } = await import(new URL("markdown.js", document.querySelector("script[src$='main.js']").src).href);
    const shown = (text, pieces) => {
      const element = document.createElement("div");
      // A text beyond what one frame shows is shown in parts.
      const later = [];
      const markdown = new Markdown(element, (work) => work());
      const frame = globalThis.requestAnimationFrame;
      globalThis.requestAnimationFrame = (work) => later.push(work);
      for (const at of pieces) {
        markdown.update(text.slice(0, at));
        while (later.length > 0) later.shift()();
      }
      globalThis.requestAnimationFrame = frame;
      return element.innerHTML;
    };
    return texts.filter(([text, pieces]) => shown(text, pieces) !== shown(text, [text.length])).map(([text]) => text);
  }, texts);
  assert.deepEqual(differing, []);
  assert.ok(texts.some(([text]) => text.length > 3_000));
  await close();
});
