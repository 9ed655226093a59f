// Bindings of plugins: which file serves which models, callers and routes.

import { notify } from "./dom.js";
import { get, part, put, remove } from "./api.js";
import { action, actions, badge, confirmed, form, names, Table, whole } from "./parts.js";

const KINDS = ["chat-template", "output-parser", "grammar", "policy", "tool", "guardrail", "retriever"];

/** What a plugin that breaks down does to a request, by kind. */
const FAILURES = [["", "as the kind has it"], ["closed", "the request is refused"], ["open", "it goes on without the plugin"], ["fallback", "the embedded plugin serves"]];

const path = (name) => `v1/admin/plugins/bindings/${part(name)}`;

const list = (values) => (values.every((value) => value === "*") ? "all" : values.join(", "));

const patterns = (values) => (values && values.some((value) => value !== "*") ? values.join(", ") : "");

/** Name of a file without its folder. */
const fileName = (file) => file?.split("/").at(-1) ?? "";

export class Bindings {
  #changed;
  #files = [];
  #table = new Table(
    "plugins-bindings",
    "Bindings of plugins",
    [
      { title: "Name", text: ({ name }) => name ?? "–" },
      { title: "Kind", text: ({ kind }) => kind },
      { title: "File", text: ({ file }) => file ?? "that of the folder, or the embedded one" },
      { title: "Models", by: ({ models, architectures }) => [models, architectures], nodes: ({ models, architectures }) => `${list(models)}${list(architectures) === "all" ? "" : `, of ${architectures.join(", ")}`}` },
      { title: "Tenants", text: ({ tenants }) => list(tenants) },
      { title: "Routes", text: ({ routes }) => list(routes) },
      { title: "Order", class: "number", text: ({ order }) => `${order}` },
      { title: "", by: (row) => row, nodes: (row) => (row.changeable ? this.#actions(row) : badge("configuration")) },
    ],
    (row) => JSON.stringify(row),
    "No binding; plugins serve as they lie in the folder.",
  );

  /** The button that asks for a binding. */
  button = action("Bind a plugin", () => this.#edit(undefined));

  /** `changed` is called when other plugins serve. */
  constructor(changed) {
    this.#changed = changed;
  }

  /** Read the bindings; `files` are those that can be bound. */
  async list(files) {
    this.#files = files;
    this.#table.set((await get("v1/admin/plugins/bindings")).data);
  }

  #actions(row) {
    const of = (label) => ({ "aria-label": `${label} the binding ${row.name}` });
    return actions(
      action("Change", () => this.#edit(row), of("Change")),
      action("Unbind", () => this.#unbind(row.name), { "aria-label": `Unbind ${row.name}`, class: "danger" }),
    );
  }

  #edit(row) {
    const files = [...new Set([...this.#files.map(fileName), fileName(row?.file)])].filter(Boolean);
    const hint = "patterns with commas, such as acme-*; empty: all";
    const fields = [
      ...(row ? [] : [{ name: "name", label: "Name of the binding", required: true }]),
      { name: "kind", label: "Kind", options: KINDS.map((kind) => [kind, kind]), value: row?.kind },
      { name: "file", label: "Plugin", options: [["", "that of the folder, or the embedded one"], ...files.map((file) => [file, file])], value: fileName(row?.file) },
      { name: "models", label: "Models", hint, value: patterns(row?.models) },
      { name: "architectures", label: "Architectures", hint, value: patterns(row?.architectures) },
      { name: "tenants", label: "Tenants", hint, value: patterns(row?.tenants) },
      { name: "routes", label: "Routes", hint: "such as /v1/chat/*; empty: all", value: patterns(row?.routes) },
      { name: "order", label: "Order", hint: "policies and guardrails are asked in rising order", value: row?.order ? String(row.order) : "" },
      { name: "on_failure", label: "Where it breaks down", options: FAILURES, value: row?.on_failure },
      { name: "settings", label: "Settings, a JSON object", value: row && Object.keys(row.settings ?? {}).length ? JSON.stringify(row.settings) : "" },
    ];
    form(row ? `Change ${row.name}` : "Bind a plugin", fields, "Save", async (values) => {
      const name = row?.name ?? values.name;
      await put(path(name), bodyOf(values));
      await this.#changed();
      return () => notify(`The binding ${name} serves.`);
    });
  }

  async #unbind(name) {
    if (!(await confirmed(`Remove the binding ${name}?`, "The plugins serve without it from the next request on. The file stays.", "Unbind"))) return;
    await remove(path(name));
    await this.#changed();
  }
}

function bodyOf(values) {
  const body = { kind: values.kind };
  if (values.file) body.file = values.file;
  if (values.on_failure) body.on_failure = values.on_failure;
  for (const field of ["models", "architectures", "tenants", "routes"]) {
    const given = names(values[field]);
    if (given.length) body[field] = given;
  }
  const order = whole(values, "order");
  if (order !== undefined) body.order = order;
  if (values.settings) body.settings = settingsOf(values.settings);
  return body;
}

function settingsOf(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`settings must be JSON: ${error.message}`);
  }
}
