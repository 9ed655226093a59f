// The audit log: its latest entries.

import { byId, eachFrame, el } from "./dom.js";
import { get } from "./api.js";
import { badge, Table } from "./parts.js";

const MOST = 500;
const FIELDS = ["at", "action", "outcome", "method", "path", "peer", "status"];

export class Audit {
  #entries = [];
  #next = 0;
  #table = new Table(
    "audit-table",
    "Audit log",
    [
      { title: "At", class: "tight", text: ({ entry }) => String(entry.at ?? "").slice(0, 19).replace("T", " ") },
      { title: "Action", text: ({ entry }) => entry.action ?? "–" },
      { title: "Outcome", by: ({ entry }) => [entry.outcome, entry.status], nodes: ({ entry }) => entry.outcome && badge([entry.outcome, entry.status].filter(Boolean).join(" "), entry.outcome === "refused" || entry.status >= 400 ? "bad" : "") },
      { title: "Request", text: ({ entry }) => [entry.method, entry.path].filter(Boolean).join(" ") || "–" },
      { title: "By", text: ({ entry }) => entry.peer ?? "–" },
      { title: "Details", by: ({ entry }) => entry, nodes: ({ entry }) => el("code", {}, detailsOf(entry)) },
    ],
    ({ number }) => String(number),
    "Nothing has been recorded since the start of the server.",
  );
  #draw = eachFrame(() => this.#show());

  async shown() {
    try {
      const { data } = await get("v1/admin/audit");
      this.#entries = data.map((entry) => ({ entry, number: this.#next++ }));
      this.#draw();
    } catch (error) {
      if (error.code !== "no_audit_log") throw error;
      byId("audit-table").replaceChildren(el("p", { class: "empty" }, error.message));
    }
  }

  told(entry) {
    this.#entries.unshift({ entry, number: this.#next++ });
    this.#entries.length = Math.min(this.#entries.length, MOST);
    this.#draw();
  }

  #show() {
    if (!byId("view-audit").hidden) this.#table.set(this.#entries);
  }
}

function detailsOf(entry) {
  const rest = Object.entries(entry).filter(([name]) => !FIELDS.includes(name));
  return rest.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}
