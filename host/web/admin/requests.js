// Requests that models are answering.

import { announce, byId, el, eachFrame } from "./dom.js";
import { part, post } from "./api.js";
import { action, badge, duration, number, Table } from "./parts.js";

export class Requests {
  #table = new Table(
    "requests-table",
    "Requests",
    [
      { title: "Request", by: ({ id }) => id, nodes: ({ id }) => el("code", {}, id) },
      { title: "Model", text: ({ model }) => model },
      { title: "Tenant", by: ({ tenant, subject }) => [tenant, subject], nodes: ({ tenant, subject }) => [el("span", {}, tenant ?? "(none)"), el("span", { class: "small" }, subject)] },
      { title: "State", by: ({ state }) => state, nodes: ({ state }) => badge(state, state === "running" ? "good" : "") },
      { title: "Age", class: "number", text: ({ age_ms: age }) => duration(age) },
      { title: "First token", class: "number", text: ({ first_token_ms: after }) => (after === null ? "–" : duration(after)) },
      { title: "Prompt", class: "number", text: ({ prompt_tokens: tokens }) => number(tokens) },
      { title: "Answer", class: "number", text: ({ completion_tokens: tokens }) => number(tokens) },
      { title: "", by: ({ id }) => id, nodes: ({ id }) => action("Cancel", () => cancel(id), { class: "danger", "aria-label": `Cancel ${id}` }) },
    ],
    ({ id, key }) => key ?? id,
    "No request is being answered.",
  );
  #now = { data: [], total: 0 };
  #draw = eachFrame(() => this.#show());

  told(now) {
    this.#now = now;
    this.#draw();
  }

  shown() {
    this.#draw();
  }

  #show() {
    if (byId("view-requests").hidden) return;
    const { data, total } = this.#now;
    // Prompts of one request share its id.
    const seen = new Map();
    const rows = data.map((row) => {
      const count = seen.get(row.id) ?? 0;
      seen.set(row.id, count + 1);
      return { ...row, key: `${row.id} ${count}` };
    });
    this.#table.set(rows);
    byId("requests-count").textContent = total > data.length ? `the oldest ${data.length} of ${total}` : `${total}`;
  }
}

async function cancel(id) {
  await post(`v1/admin/requests/${part(id)}/cancel`);
  announce(`${id} is cancelled.`);
}
