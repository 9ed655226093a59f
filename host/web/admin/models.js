// Models: states, loads, unloads, and what is known of each.

import { announce, byId, eachFrame, el, notify, pretty } from "./dom.js";
import { get, part, post } from "./api.js";
import { changed, keepBox, offerToKeep } from "./persist.js";
import { action, actions, badge, bytes, confirmed, duration, form, names, number, show, Table, whole } from "./parts.js";
import { Pulls } from "./pulls.js";

const KINDS = { loaded: "good", failed: "bad" };

/** Time after which a load that was not refused has begun. */
const LOAD_BEGUN_MS = 1000;

const column = (name) => (row) => row[name];

/** Fields of the form that loads a model, from what the server says that a load takes. */
function loadFields(constraints) {
  return Object.entries(constraints ?? {}).map(([name, rule]) => {
    const label = name.replaceAll("_", " ");
    const hint = [rule.minimum !== undefined && `from ${rule.minimum}`, rule.maximum !== undefined && `to ${rule.maximum}`, rule.null_means && `default: ${rule.null_means}`].filter(Boolean).join(", ");
    if (rule.kind === "boolean") return { name, label, hint, options: [["", "as configured"], ["true", "yes"], ["false", "no"]] };
    if (rule.kind === "adapters") return { name, label, hint: "Names with commas, each with a scale behind a colon if it is not that of the configuration: legal, terse:0.5" };
    if (rule.kind !== "choice") return { name, label, hint };
    return { name, label, hint, options: [["", "as configured"], ...rule.allowed_values.map((value) => [String(value), String(value)])] };
  });
}

/** A setting of a load as the server takes it; `undefined` if the field is empty. */
function settingOf(kind, values, name) {
  const text = values[name];
  if (kind === "integer") return whole(values, name);
  if (!text) return undefined;
  if (kind === "boolean") return text === "true";
  if (kind !== "adapters") return text;
  return names(text).map((adapter) => {
    const [lora, scale] = adapter.split(":");
    if (scale === undefined) return { name: lora };
    if (!Number.isFinite(Number.parseFloat(scale))) throw new Error(`${adapter}: the scale must be a number`);
    return { name: lora, scale: Number(scale) };
  });
}

export class Models {
  #rows = new Map();
  #stale = new Set();
  #circuits = new Map();
  #pulls = new Pulls(() => this.list());
  #table = new Table(
    "models-table",
    "Models",
    [
      { title: "Model", by: (row) => [row.name, row.aliases, row.architecture, row.resolved_backend], nodes: (row) => nameOf(row) },
      { title: "State", by: (row) => [row.runtime_state, row.last_error, row.progress, row.circuit], nodes: (row) => stateOf(row) },
      { title: "Requests", class: "number", text: (row) => number(row.inflight_requests) },
      { title: "Running", class: "number", text: (row) => number(row.runtime_inflight) },
      { title: "Waiting", class: "number", text: (row) => number(row.queue_depth) },
      { title: "So far", class: "number", text: (row) => number(row.usage_count) },
      { title: "Memory", class: "number", text: (row) => bytes(row.vram_estimate_mib * 1024 * 1024) },
      { title: "", by: (row) => [row.name, row.runtime_state, this.#pulls.canRemove(row.name)], nodes: (row) => this.#actions(row) },
    ],
    column("name"),
    "No model has this name or state.",
  );
  #draw = eachFrame(() => this.#show());
  #fetch = eachFrame(() => this.#refresh());

  constructor() {
    byId("models-filter").addEventListener("input", () => this.#draw());
    byId("models-actions").replaceChildren(
      keepBox(),
      this.#pulls.button,
      action("Rescan folders", () => this.#rescan()),
      action("Read settings again", () => reloadSettings().then(() => this.list())),
      action("Restart all", () => this.#restart(), { class: "danger" }),
    );
  }

  get names() {
    return [...this.#rows.keys()];
  }

  async list() {
    const { data, can_persist: can } = await get("v1/admin/models");
    offerToKeep(can === true);
    this.#rows = new Map(data.map((row) => [row.name, row]));
    this.#draw();
  }

  /** The stream of events begins anew, and tells of the breakers that are not closed. */
  connected() {
    this.#circuits.clear();
  }

  /** The breaker of a model has opened or closed. */
  circuit({ model, circuit }) {
    if (circuit === "closed") this.#circuits.delete(model);
    else this.#circuits.set(model, circuit);
    this.#draw();
  }

  /** A model is in another state. */
  state({ model, state, error }) {
    const row = this.#rows.get(model);
    if (row && row.runtime_state === state && row.last_error === error) return;
    if (row) Object.assign(row, { runtime_state: state, last_error: error, progress: null });
    this.#stale.add(model);
    this.#draw();
    this.#fetch();
  }

  progress(told) {
    const row = this.#rows.get(told.model);
    if (row) Object.assign(row, { runtime_state: told.state, progress: told });
    this.#draw();
  }

  numbers({ models }) {
    for (const now of models) {
      const row = this.#rows.get(now.model);
      if (row) Object.assign(row, { inflight_requests: now.in_flight, runtime_inflight: now.running, queue_depth: now.waiting, usage_count: now.uses });
    }
    this.#draw();
  }

  /** Read the rows of models whose state has changed. Of many, the list is one request instead. */
  async #refresh() {
    const stale = [...this.#stale];
    this.#stale.clear();
    try {
      if (stale.length > 8 || stale.some((name) => !this.#rows.has(name))) return await this.list();
      for (const name of stale) this.#rows.set(name, await get(`v1/admin/models/${part(name)}`));
    } catch (error) {
      notify(error.message, "error");
    }
    this.#draw();
  }

  #show() {
    if (byId("view-models").hidden) return;
    const wanted = byId("models-filter").value.trim().toLowerCase();
    const rows = [...this.#rows.values()].filter(({ name, runtime_state: state }) => name.toLowerCase().includes(wanted) || state === wanted);
    this.#table.set(rows.map((row) => ({ ...row, circuit: this.#circuits.get(row.name) })));
    byId("models-count").textContent = `${rows.length} of ${this.#rows.size}`;
  }

  /** A pull from the hub has gone on. */
  pull(row) {
    this.#pulls.told(row);
  }

  /** The section is shown. */
  async shown() {
    this.#draw();
    await this.#pulls.list();
    this.#draw();
  }

  #actions(row) {
    const { name, runtime_state: state } = row;
    const of = (label) => ({ "aria-label": `${label} ${name}` });
    return actions(
      ["unloaded", "failed"].includes(state) && action("Load", () => this.#load(name), of("Load")),
      state === "loaded" && action("Unload", () => this.#unload(name), of("Unload")),
      action("Details", () => this.#details(name), of("Details of")),
      ["unloaded", "failed"].includes(state) && this.#pulls.canRemove(name) && action("Remove", () => this.#pulls.remove(name), { ...of("Remove"), class: "danger" }),
    );
  }

  #load(name) {
    const { load_constraints: constraints } = this.#rows.get(name);
    const fields = loadFields(constraints);
    form(`Load ${name}`, fields, "Load", async (values) => {
      const settings = {};
      for (const field of fields) {
        const value = settingOf(constraints[field.name].kind, values, field.name);
        if (value !== undefined) settings[field.name] = value;
      }
      let closed = false;
      const load = changed("POST", `v1/admin/models/${part(name)}/load`, settings).then(() => announce(`${name} is loaded.`));
      load.catch((error) => closed && notify(error.message, "error"));
      // What is refused is refused soon, and the form stays with it. A load that has begun takes as long as it takes: its
      // progress is in the list, and so is its failure.
      await Promise.race([load, new Promise((resolve) => setTimeout(resolve, LOAD_BEGUN_MS))]);
      closed = true;
    });
  }

  async #unload(name) {
    await changed("POST", `v1/admin/models/${part(name)}/unload`);
    announce(`${name} is unloaded.`);
  }

  async #details(name) {
    const row = await get(`v1/admin/models/${part(name)}`);
    const { lines } = await get(`v1/admin/models/${part(name)}/log?lines=200`).catch(() => ({ lines: [] }));
    const log = lines.length ? [el("h3", {}, "Output"), el("pre", { tabIndex: 0 }, lines.map(({ text }) => text).join("\n"))] : [];
    show(name, el("pre", { tabIndex: 0 }, pretty(JSON.stringify(row))), ...log);
  }

  async #rescan() {
    const { new_models: found, removed } = await post("v1/admin/models/rescan");
    notify(`${found} new models, ${removed} removed.`);
    await this.list();
  }

  async #restart() {
    if (!(await confirmed("Restart all models?", "All models are unloaded, and those of the start are loaded again. Requests that run are answered first.", "Restart"))) return;
    await post("admin/reload");
    await this.list();
  }
}

/** Read the settings again, and tell what came of it. */
async function reloadSettings() {
  const told = await post("v1/admin/settings/reload");
  const changed = ["added", "removed", "updated"].map((what) => `${told[what].length} ${what}`).join(", ");
  const later = told.restart_keys.length ? ` After a restart: ${told.restart_keys.join(", ")}.` : "";
  notify(`Models: ${changed}.${later}`);
}

function nameOf(row) {
  const about = [row.resolved_backend, row.architecture, row.context_length && `${number(row.context_length)} tokens`, row.pinned && "pinned", row.hidden && "hidden"].filter(Boolean).join(", ");
  const aliases = row.aliases.length ? `also ${row.aliases.join(", ")}` : "";
  return [el("strong", {}, row.name), el("span", { class: "small" }, [about, aliases].filter(Boolean).join("; "))];
}

function stateOf(row) {
  const { progress, runtime_state: state, last_error: error } = row;
  const told = progress && state === "loading";
  const bar = told && progress.bytes_total > 0 && el("progress", { max: progress.bytes_total, value: progress.bytes_done, "aria-label": `Progress of ${row.name}` });
  const size = told && progress.bytes_total > 0 ? ` ${bytes(progress.bytes_done)} of ${bytes(progress.bytes_total)}` : "";
  return [
    badge(state, KINDS[state]),
    row.circuit && badge(`circuit ${row.circuit.replaceAll("_", " ")}`, "bad"),
    bar,
    told && el("span", { class: "small" }, `${progress.stage}${progress.file ? ` ${progress.file}` : ""}${size}`),
    error && el("span", { class: "wrong" }, error),
    state === "loaded" && row.load_time_ms !== null && el("span", { class: "small" }, `in ${duration(row.load_time_ms)}`),
  ];
}
