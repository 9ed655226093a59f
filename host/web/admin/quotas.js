// How much of each limit the requests of a key have used.

import { el } from "./dom.js";
import { moment, number } from "./parts.js";

/** Part of a limit from which its bar warns. */
const NEARLY = 0.9;

/** Limits of keys by their ids, as the events of the server tell them: all at first, then those that have changed. */
export class Quotas {
  #told = new Map();

  /** Take what an event tells; the ids that it is about. */
  take({ data }) {
    for (const row of data) this.#told.set(row.id, row);
    return data.map(({ id }) => id);
  }

  of(id) {
    return this.#told.get(id);
  }

  /** The limits of a key, as bars and words; `followed` says that there were events. */
  view(id, followed) {
    const told = this.of(id);
    if (!told) return followed ? "not yet known" : "…";
    const bars = (told.quotas ?? []).map((quota) => bar(id, quota));
    if (told.quotas?.length === 0 && !told.reason) bars.push("no limit");
    return [...bars, told.reason && el("span", { class: "small" }, `Not known: ${told.reason}`)];
  }
}

/** One limit. The words say all that the bar shows. */
function bar(id, { name, shared_by: holder, limit, used, remaining, resets_at: resets }) {
  const label = `${String(name).replaceAll("_", " ")}${holder ? ` of ${holder}` : ""}`;
  const words = `${number(used)} of ${number(limit)} used, ${number(remaining)} left`;
  const meter = el("meter", {
    role: "meter",
    min: 0,
    max: limit,
    low: NEARLY * limit,
    high: limit,
    optimum: 0,
    value: Math.min(used, limit),
    "aria-label": `${label}, ${id}`,
    "aria-valuemin": "0",
    "aria-valuemax": String(limit),
    "aria-valuenow": String(Math.min(used, limit)),
    "aria-valuetext": words,
  });
  const end = typeof resets === "number" ? `; full again at ${moment(resets)}` : "";
  return el("div", { class: "quota" }, el("span", {}, label), meter, el("span", { class: "small" }, words + end));
}
