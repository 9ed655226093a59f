// Changes of models and aliases that are kept for the next start, where the server can keep them.

import { el, notify } from "./dom.js";
import { change } from "./api.js";

const TOLD = { written: "Kept for the next start.", unchanged: "The next start is like this already: nothing had to be written." };

const boxes = [];

/** A box by which changes are kept. All of them say the same. */
export function keepBox() {
  const input = el("input", { type: "checkbox" });
  input.addEventListener("change", () => boxes.forEach((box) => (box.input.checked = input.checked)));
  const label = el("label", { class: "check", hidden: true }, input, "Keep changes for the next start");
  boxes.push({ input, label });
  return label;
}

/** Show the boxes if the server can keep changes. */
export function offerToKeep(can) {
  for (const { input, label } of boxes) {
    label.hidden = !can;
    input.checked &&= can;
  }
}

/** Change something, for the next start too if the boxes say so, and tell what was kept. */
export async function changed(method, path, body) {
  const keep = boxes.some(({ input }) => input.checked);
  const { value, persisted } = await change(method, keep ? `${path}?persist=true` : path, body);
  if (TOLD[persisted]) notify(TOLD[persisted]);
  return value;
}
