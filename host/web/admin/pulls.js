// Models that come from the hub, and those that can be removed again.

import { byId, eachFrame, el, notify } from "./dom.js";
import { get, part, post, remove } from "./api.js";
import { action, badge, bytes, confirmed, form, Table } from "./parts.js";

const KINDS = { completed: "good", failed: "bad" };
const ENDED = ["completed", "failed", "cancelled"];

export class Pulls {
  #rows = new Map();
  #removable = new Set();
  #ended;
  #table = new Table(
    "pulls-table",
    "Pulls",
    [
      { title: "Model", text: ({ model }) => model },
      { title: "State", by: ({ state, error }) => [state, error], nodes: ({ state, error }) => [badge(state, KINDS[state]), error && el("span", { class: "wrong" }, error)] },
      { title: "Progress", by: (row) => [row.file, row.bytes_done, row.bytes_total], nodes: (row) => progressOf(row) },
      { title: "", by: ({ id, state }) => [id, state], nodes: (row) => !ENDED.includes(row.state) && action("Cancel", () => cancel(row), { class: "danger", "aria-label": `Cancel the pull of ${row.model}` }) },
    ],
    ({ id }) => id,
    "Nothing has been pulled since the start of the server.",
  );
  #draw = eachFrame(() => this.#show());

  /** The button that asks for a pull. */
  button = action("Pull from the hub", () => this.#ask());

  /** `ended` is called when a pull has ended or a model was removed: there may be other models then. */
  constructor(ended) {
    this.#ended = ended;
    this.button.hidden = true;
  }

  /** True if a model came over the network, and can be removed. */
  canRemove(name) {
    return this.#removable.has(name);
  }

  async list() {
    try {
      const known = [...this.#rows.keys()];
      const { data } = await get("v1/admin/pulls");
      for (const id of known) if (!data.some((row) => row.id === id)) this.#rows.delete(id);
      data.forEach((row) => this.#keep(row));
      const { data: library } = await get("v1/admin/library");
      this.#removable = new Set(library.map(({ name }) => name));
      this.button.hidden = byId("pulls").hidden = false;
    } catch (error) {
      if (error.code !== "library_off") throw error;
      this.button.hidden = byId("pulls").hidden = true;
    }
    this.#draw();
  }

  /** A pull has gone on. */
  told(row) {
    const before = this.#rows.get(row.id)?.state;
    this.#keep(row);
    this.#draw();
    if (ENDED.includes(row.state) && before !== row.state) this.#change();
  }

  /** Answers and events overtake one another: what has ended stays so. */
  #keep(row) {
    if (!ENDED.includes(this.#rows.get(row.id)?.state)) this.#rows.set(row.id, row);
  }

  async remove(name) {
    if (!(await confirmed(`Remove ${name}?`, "Its files are deleted from the folder of the library.", "Remove"))) return;
    await remove(`v1/admin/models/${part(name)}`);
    await this.#change();
  }

  async #change() {
    try {
      await this.list();
      await this.#ended();
    } catch (error) {
      notify(error.message, "error");
    }
  }

  #ask() {
    const fields = [{ name: "model", label: "Model of the hub", required: true, placeholder: "Qwen/Qwen3-0.6B", hint: "org/name, org/name:Q8_0 for a GGUF file, @revision to pin one" }];
    form("Pull from the hub", fields, "Pull", async ({ model }) => {
      this.told(await post("v1/admin/pulls", { model }));
    });
  }

  #show() {
    if (byId("view-models").hidden) return;
    this.#table.set([...this.#rows.values()].sort((one, other) => other.created_at_ms - one.created_at_ms));
  }
}

async function cancel({ id, model }) {
  await remove(`v1/admin/pulls/${part(id)}`);
  notify(`The pull of ${model} is cancelled. What has come stays for the next one.`);
}

function progressOf({ model, file, bytes_done: done, bytes_total: total, state }) {
  if (!total) return "–";
  const bar = !ENDED.includes(state) && el("progress", { max: total, value: done, "aria-label": `Progress of the pull of ${model}` });
  return [bar, el("span", { class: "small" }, `${file ? `${file}, ` : ""}${bytes(done)} of ${bytes(total)}`)];
}
