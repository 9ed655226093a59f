// Plugins: which serve whom, what they cost, and how they failed.

import { byId, el, notify } from "./dom.js";
import { get, post } from "./api.js";
import { Bindings } from "./bindings.js";
import { action, badge, bytes, duration, number, Table } from "./parts.js";
import { fileActions, folderFiles, newFile } from "./plugin-files.js";

const list = (values) => (values?.length ? values.join(", ") : "all");

export class Plugins {
  #generation;
  #numbers = new Table(
    "plugins-numbers",
    "Calls, time and faults of plugins",
    [
      { title: "Plugin", by: (row) => [row.plugin, row.version, row.kind], nodes: (row) => [el("strong", {}, row.plugin), el("span", { class: "small" }, `${row.kind}, ${row.version}`)] },
      { title: "State", by: ({ suspended }) => suspended, nodes: ({ suspended }) => badge(suspended ? `${suspended} suspended` : "serves", suspended ? "bad" : "good") },
      { title: "Calls", class: "number", text: ({ calls }) => number(calls) },
      { title: "Time a call", class: "number", text: ({ calls, seconds }) => (calls ? micros(seconds / calls) : "–") },
      { title: "Time in all", class: "number", text: ({ seconds }) => duration(seconds * 1000) },
      { title: "Faults", class: "number", text: ({ faults }) => number(Object.values(faults).reduce((all, count) => all + count, 0)) },
      { title: "Which", text: ({ faults }) => Object.entries(faults).map(([fault, count]) => `${fault}: ${number(count)}`).join(", ") || "–" },
      { title: "Instances", class: "number", text: ({ instances }) => number(instances) },
      { title: "Memory, most", class: "number", text: ({ memory_peak_bytes: most }) => bytes(most) },
    ],
    ({ plugin, kind }) => JSON.stringify([plugin, kind]),
    "No plugin has been bound.",
  );
  #serving = new Table(
    "plugins-serving",
    "Assignments of plugins",
    [
      { title: "Kind", text: ({ kind }) => kind },
      { title: "Plugin", text: ({ plugin, version }) => `${plugin} ${version}` },
      { title: "Model", text: ({ model, models }) => model ?? list(models) },
      { title: "Tenants", text: ({ tenants }) => list(tenants) },
      { title: "Routes", text: ({ routes }) => list(routes) },
      { title: "From", text: ({ origin }) => (typeof origin === "string" ? origin : JSON.stringify(origin)) },
    ],
    (row) => JSON.stringify(row),
    "No plugin serves.",
  );
  #files = new Table(
    "plugins-files",
    "Files of plugins",
    [
      { title: "File", text: ({ file }) => file },
      { title: "Version", text: ({ version }) => version ?? "–" },
      { title: "Kinds", text: ({ kinds }) => kinds?.join(", ") ?? "removed" },
      { title: "Built against", text: ({ built_against: built }) => built ?? "–" },
      { title: "SHA-256", by: ({ digest }) => digest, nodes: ({ digest }) => digest && el("code", {}, digest) },
      { title: "", by: ({ change }) => change, nodes: ({ change }) => change && fileActions(change, () => this.shown()) },
    ],
    ({ file }) => file,
    "There is no file of a plugin; the embedded ones serve.",
  );
  #breakdowns = new Table(
    "plugins-breakdowns",
    "Latest breakdowns of plugins",
    [
      { title: "At", class: "tight", text: ({ at }) => at.slice(0, 19).replace("T", " ") },
      { title: "Plugin", text: ({ plugin, version }) => `${plugin} ${version}` },
      { title: "Function", text: ({ function: name }) => name },
      { title: "Request", by: ({ request_id: id }) => id, nodes: ({ request_id: id }) => el("code", {}, id) },
      { title: "What happened", by: ({ text, printed }) => [text, printed], nodes: ({ text, printed }) => [el("span", {}, text), printed && el("span", { class: "small" }, printed)] },
    ],
    (row) => JSON.stringify(row),
    "No plugin has broken down.",
  );

  #bindings = new Bindings(() => this.shown());
  #new = action("New plugin file", () => newFile(() => this.shown()));

  constructor() {
    byId("plugins-actions").replaceChildren(this.#bindings.button, this.#new, action("Read plugins again", () => this.#reload()));
  }

  async shown() {
    const status = await get("v1/admin/plugins");
    this.#generation = status.generation;
    byId("plugins-generation").textContent = `set ${number(status.generation)}`;
    this.#serving.set(status.serving);
    const changeable = await folderFiles();
    this.#new.hidden = !changeable;
    const loaded = status.files.map((row) => ({ ...row, change: changeable?.find(({ path }) => path === row.file) }));
    const others = changeable?.filter(({ path }) => !status.files.some(({ file }) => file === path)) ?? [];
    this.#files.set([...loaded, ...others.map((change) => ({ file: change.path, change }))]);
    await this.#bindings.list([...status.files, ...others.map(({ path: file }) => ({ file }))].map(({ file }) => file));
    this.#breakdowns.set(status.breakdowns);
    const refused = status.rejected.map(({ file, reason }) => `${file ?? "configuration"}: ${reason}`);
    const problems = [...refused, status.error].filter(Boolean);
    byId("plugins-problems").replaceChildren(...problems.map((problem) => el("p", { class: "problem" }, problem)));
  }

  async told({ generation, plugins }) {
    this.#numbers.set(plugins);
    if (byId("view-plugins").hidden || generation === this.#generation) return;
    try {
      await this.shown();
    } catch (error) {
      notify(error.message, "error");
    }
  }

  async #reload() {
    const { rejected, error, changed } = await post("v1/admin/plugins/reload");
    const refused = rejected.length ? ` ${rejected.length} files were refused.` : "";
    notify(error ?? `${changed?.length ? `${changed.length} changes.` : "Nothing has changed."}${refused}`, error ? "error" : "info");
    await this.shown();
  }
}

const micros = (seconds) => (seconds < 0.001 ? `${number(seconds * 1e6)} µs` : duration(seconds * 1000));
