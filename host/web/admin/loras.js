// LoRA adapters of the models.

import { byId, el } from "./dom.js";
import { get, post } from "./api.js";
import { Live } from "./live.js";
import { action, actions, badge, bytes, form, number, Table } from "./parts.js";

const KINDS = { loaded: "good" };

export class Adapters {
  #models;
  #live = new Live("loras", () => get("v1/admin/loras"), ({ loras }) => this.#table.set(loras));
  #table = new Table(
    "adapters-table",
    "LoRA adapters",
    [
      { title: "Adapter", by: (row) => [row.lora_id, row.path], nodes: (row) => [el("strong", {}, row.lora_id), el("span", { class: "small" }, row.path)] },
      { title: "Model", text: (row) => row.base_model },
      { title: "State", by: (row) => [row.status, row.last_error], nodes: (row) => [badge(row.status, KINDS[row.status]), row.last_error && el("span", { class: "wrong" }, row.last_error)] },
      { title: "Rank", class: "number", text: (row) => (row.rank === null ? "–" : number(row.rank)) },
      { title: "Size", class: "number", text: (row) => (row.size_bytes === null ? "–" : bytes(row.size_bytes)) },
      { title: "Uses", class: "number", text: (row) => number(row.usage_count) },
      { title: "", by: (row) => [row.lora_id, row.base_model, row.status], nodes: (row) => this.#actions(row) },
    ],
    (row) => JSON.stringify([row.base_model, row.lora_id]),
    "No model has an adapter.",
  );

  /** `models` gives the names of the models. */
  constructor(models) {
    this.#models = models;
    byId("adapters-actions").replaceChildren(action("Load a folder or file", () => this.#load()));
  }

  shown() {
    return this.#live.shown();
  }

  hidden() {
    this.#live.hidden();
  }

  #actions(row) {
    const body = { lora_id: row.lora_id, base_model: row.base_model };
    const act = (what) => post(`v1/admin/loras/${what}`, body).then(() => this.#live.list());
    return actions(
      row.status === "available" && action("Load", () => act("load"), { "aria-label": `Load ${row.lora_id}` }),
      row.status === "loaded" && action("Unload", () => act("unload"), { "aria-label": `Unload ${row.lora_id}` }),
    );
  }

  #load() {
    const fields = [
      { name: "lora_id", label: "Name", required: true },
      { name: "base_model", label: "Model", options: this.#models().map((name) => [name, name]) },
      { name: "path", label: "Folder or file on the server", hint: "empty: that of the configuration" },
      { name: "scale", label: "Scale", hint: "empty: 1" },
    ];
    form("Load an adapter", fields, "Load", async ({ lora_id, base_model, path, scale }) => {
      const body = { lora_id, base_model };
      if (path) body.path = path;
      if (scale) body.scale = Number(scale);
      await post("v1/admin/loras/load", body);
      await this.#live.list();
    });
  }
}
