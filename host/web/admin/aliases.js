// Aliases: names that stand for a model, with a canary beside it.

import { byId, el } from "./dom.js";
import { get, part } from "./api.js";
import { Live } from "./live.js";
import { action, actions, confirmed, duration, form, names, number, Table } from "./parts.js";
import { changed, keepBox } from "./persist.js";

const meaning = (alias) => {
  if (!alias) return "–";
  const { target, canary } = alias;
  if (!canary) return target;
  const tenants = canary.tenants.length ? ` and ${canary.tenants.join(", ")}` : "";
  return `${target}; ${number(canary.percent)} %${tenants} to ${canary.target}`;
};

export class Aliases {
  #models;
  #live = new Live("aliases", () => get("v1/admin/aliases"), ({ data }) => this.#table.set(data));
  #table = new Table(
    "aliases-table",
    "Aliases",
    [
      { title: "Alias", text: ({ name }) => name },
      { title: "Means", text: (row) => meaning(row) },
      { title: "Before", text: ({ previous }) => meaning(previous) },
      { title: "Numbers", by: ({ targets }) => targets, nodes: ({ targets }) => Object.entries(targets).map(numbersOf) },
      { title: "", by: (row) => row, nodes: (row) => this.#actions(row) },
    ],
    ({ name }) => name,
    "There is no alias.",
  );

  /** `models` gives the names of the models. */
  constructor(models) {
    this.#models = models;
    byId("aliases-actions").replaceChildren(keepBox(), action("New alias", () => this.#edit(undefined)));
  }

  shown() {
    return this.#live.shown();
  }

  hidden() {
    this.#live.hidden();
  }

  /** Make a change, and show what came of it: it may be in force though it could not be kept. */
  async #change(method, path, body) {
    try {
      await changed(method, `v1/admin/aliases/${path}`, body);
    } finally {
      await this.#live.list();
    }
  }

  #actions(row) {
    const of = (label) => ({ "aria-label": `${label} ${row.name}` });
    return actions(
      action("Change", () => this.#edit(row), of("Change")),
      row.previous && action("Roll back", () => this.#change("POST", `${part(row.name)}/rollback`), of("Roll back")),
      action("Remove", () => this.#remove(row.name), { ...of("Remove"), class: "danger" }),
    );
  }

  #edit(row) {
    const targets = this.#models().map((name) => [name, name]);
    const { canary } = row ?? {};
    const fields = [
      ...(row ? [] : [{ name: "name", label: "Alias", required: true }]),
      { name: "target", label: "Model", options: targets, value: row?.target },
      { name: "canary", label: "Canary", options: [["", "none"], ...targets], value: canary?.target },
      { name: "percent", label: "Part of the callers that it gets, in percent", value: canary ? String(canary.percent) : "" },
      { name: "tenants", label: "Tenants that it gets, with commas", value: canary?.tenants.join(", ") },
    ];
    form(row ? `Change ${row.name}` : "New alias", fields, "Save", async (values) => {
      const body = { target: values.target };
      if (values.canary) body.canary = { target: values.canary, percent: Number(values.percent || 0), tenants: names(values.tenants) };
      await this.#change("PUT", part(row?.name ?? values.name), body);
    });
  }

  async #remove(name) {
    if (!(await confirmed(`Remove ${name}?`, "Requests that name it are refused from then on.", "Remove"))) return;
    await this.#change("DELETE", part(name));
  }
}

function numbersOf([model, numbers]) {
  const { requests, errors, mean_latency_ms: mean, p99_latency_ms: tail = mean } = numbers;
  const times = `${duration(mean)} on average, ${duration(tail)} at the 99th percentile`;
  return el("span", { class: "small" }, `${model}: ${number(requests)} requests, ${number(errors)} errors, ${times}`);
}
