// Collections of documents: what is in them, what a search finds, and their vectors.

import { announce, byId, eachFrame, el, notify } from "./dom.js";
import { get, part, post, remove, upload } from "./api.js";
import { follow } from "./live.js";
import { action, actions, badge, bytes, confirmed, form, moment, number, show, Table, whole } from "./parts.js";

const ALL = "v1/admin/collections";
const KINDS = { completed: "good", failed: "bad" };
/** Files that are shown; of more, the number is told. */
const MOST = 100;

const at = ({ owner, id }, ...below) => [ALL, owner, id, ...below].map((name, index) => (index ? part(name) : name)).join("/");

const ownerOf = ({ tenant, caller }) => (tenant !== null && tenant !== undefined ? tenant : `(${caller ?? "none"})`);

const titleOf = ({ name, id }) => name || id;

export class Collections {
  #rows = new Map();
  #total = 0;
  #open;
  #files = [];
  #more = false;
  #following;
  #table = new Table(
    "collections-table",
    "Collections",
    [
      { title: "Collection", by: ({ name, id }) => [name, id], nodes: ({ name, id }) => [el("strong", {}, name || "(no name)"), el("code", { class: "small" }, id)] },
      { title: "Tenant", text: ownerOf },
      { title: "Vectors by", text: ({ embedding_model: model }) => model },
      { title: "State", by: (row) => [row.status, row.reembedding, row.file_counts], nodes: (row) => stateOf(row) },
      { title: "Files", class: "number", text: ({ file_counts: { total } }) => number(total) },
      { title: "Chunks", class: "number", text: ({ chunks }) => number(chunks) },
      { title: "Size", class: "number", text: ({ usage_bytes: size }) => bytes(size) },
      { title: "Made", class: "tight", text: ({ created_at: made }) => moment(made) },
      { title: "", by: (row) => [row.owner, row.id, row.name, row.reembedding?.status], nodes: (row) => this.#actions(row) },
    ],
    ({ owner, id }) => JSON.stringify([owner, id]),
    "No caller has a collection.",
  );
  #documents = new Table(
    "collections-files",
    "Files of a collection",
    [
      { title: "File", by: (row) => [row.filename, row.id], nodes: (row) => [el("span", {}, row.filename), el("code", { class: "small" }, row.id)] },
      { title: "State", by: ({ status, last_error: error }) => [status, error], nodes: ({ status, last_error: error }) => [badge(status.replaceAll("_", " "), KINDS[status]), error && el("span", { class: "wrong" }, error.message)] },
      { title: "Chunks", by: ({ status, progress }) => [status, progress], nodes: (row) => progressOf(row) },
      { title: "Size", class: "number", text: ({ usage_bytes: size }) => bytes(size) },
      { title: "Attached", class: "tight", text: ({ created_at: made }) => moment(made) },
      { title: "", by: ({ id, filename }) => [id, filename], nodes: (row) => action("Take out", () => this.#detach(row), { class: "danger", "aria-label": `Take out ${row.filename}` }) },
    ],
    ({ id }) => id,
    "The collection has no file.",
  );
  #draw = eachFrame(() => this.#show());

  constructor() {
    byId("collections-actions").replaceChildren(action("New collection", () => this.#create()));
    byId("collections-filter").addEventListener("input", () => this.#draw());
  }

  /** The section is shown: its events are followed for as long as it is. */
  async shown() {
    this.hidden();
    this.#following = new AbortController();
    follow(["collections"], this.#following.signal, { heard: (name, data) => name === "collections" && this.#told(data) });
    this.#draw();
  }

  hidden() {
    this.#following?.abort();
    this.#following = undefined;
  }

  async #told({ data, total }) {
    this.#total = total;
    this.#rows = new Map(data.map((row) => [JSON.stringify([row.owner, row.id]), row]));
    this.#draw();
    await this.#list().catch((error) => notify(error.message, "error"));
  }

  /** Read the files of the collection that is open. */
  async #list() {
    const open = this.#open;
    if (!open) return;
    if (!this.#rows.has(JSON.stringify([open.owner, open.id]))) {
      this.#open = undefined;
    } else {
      const { data, has_more: more } = await get(`${at(open, "files")}?limit=${MOST}`);
      if (this.#open !== open) return;
      [this.#files, this.#more] = [data, more];
    }
    this.#draw();
  }

  #show() {
    if (byId("view-collections").hidden) return;
    const wanted = byId("collections-filter").value.trim().toLowerCase();
    const rows = [...this.#rows.values()].filter((row) => [row.name, row.id, row.owner].some((text) => text.toLowerCase().includes(wanted)));
    this.#table.set(rows);
    byId("collections-count").textContent = `${rows.length} of ${this.#total}`;
    byId("collection-open").hidden = !this.#open;
    if (!this.#open) return;
    byId("collection-title").textContent = `Files of ${titleOf(this.#open)}${this.#more ? `, the first ${MOST}` : ""}`;
    this.#documents.set(this.#files);
  }

  #actions(row) {
    const of = (label) => ({ "aria-label": `${label} ${titleOf(row)}` });
    const renewing = row.reembedding?.status === "in_progress";
    return actions(
      action("Files", () => this.#select(row), of("Files of")),
      action("Search", () => search(row), of("Search")),
      renewing ? action("Keep vectors", () => keepVectors(row), of("Keep the vectors of")) : action("New vectors", () => renew(row), of("New vectors of")),
      action("Delete", () => this.#delete(row), { ...of("Delete"), class: "danger" }),
    );
  }

  async #select(row) {
    [this.#open, this.#files, this.#more] = [row, [], false];
    byId("collection-actions").replaceChildren(action("Add a document", () => this.#add(row), { "aria-label": `Add a document to ${titleOf(row)}` }));
    await this.#list();
    byId("collection-title").focus();
  }

  #create() {
    const fields = [
      { name: "name", label: "Name" },
      { name: "tenant", label: "Tenant", hint: "empty: callers without a key, or the caller below" },
      { name: "caller", label: "Caller without a tenant" },
      { name: "embedding_model", label: "Model that makes the vectors", hint: "empty: the only one that does" },
    ];
    form("New collection", fields, "Make", async (values) => {
      const given = Object.entries(values).filter(([, value]) => value);
      const made = await post(ALL, Object.fromEntries(given));
      announce(`${titleOf(made)} is made.`);
    });
  }

  #add(row) {
    const fields = [
      { name: "document", label: "Document", file: ".txt,.md,.html,.htm,.pdf,text/*", required: true, hint: "text, Markdown, HTML or PDF of at most 16 MiB" },
      { name: "name", label: "Name", hint: "empty: that of the file; its end tells what it is" },
    ];
    form(`Add a document to ${titleOf(row)}`, fields, "Add", async ({ document: file, name }) => {
      await upload("POST", `${at(row, "files")}?name=${part(name || file.name)}`, file);
      announce(`${name || file.name} is being ingested.`);
      await this.#list();
    });
  }

  async #detach(file) {
    const open = this.#open;
    if (!(await confirmed(`Take ${file.filename} out?`, "It is no longer found in this collection. The file itself stays with its owner.", "Take out"))) return;
    await remove(at(open, "files", file.id));
    await this.#list();
  }

  async #delete(row) {
    if (!(await confirmed(`Delete ${titleOf(row)}?`, "Its chunks and vectors are deleted. The files themselves stay with their owner.", "Delete"))) return;
    await remove(at(row));
    announce(`${titleOf(row)} is deleted.`);
  }
}

/** A search to try, with what it finds in the form. */
function search(row) {
  const fields = [{ name: "query", label: "Query", required: true }, { name: "max_num_results", label: "Results at most", value: "10" }];
  form(`Search ${titleOf(row)}`, fields, "Search", async (values) => {
    const body = { query: values.query, max_num_results: whole(values, "max_num_results") };
    const { data } = await post(at(row, "search"), body);
    return el("div", { class: "found" }, data.length ? el("ol", {}, ...data.map(hit)) : el("p", {}, "Nothing was found."));
  });
}

function hit({ filename, score, content }) {
  const passages = content.map(({ text, start, end, page }) => [
    el("span", { class: "small" }, `bytes ${number(start)} to ${number(end)}${page ? `, page ${number(page)}` : ""}`),
    el("pre", { tabIndex: 0 }, text),
  ]);
  return el("li", {}, el("strong", {}, filename), badge(score.toFixed(3)), ...passages.flat());
}

function renew(row) {
  const fields = [{ name: "embedding_model", label: "Model that makes the vectors", value: row.embedding_model, hint: "the old vectors serve until all of the new ones are there" }];
  form(`New vectors of ${titleOf(row)}`, fields, "Make them", async ({ embedding_model: model }) => {
    await post(at(row, "reembed"), model ? { embedding_model: model } : {});
  });
}

async function keepVectors(row) {
  await remove(at(row, "reembed"));
  announce(`The vectors of ${titleOf(row)} stay.`);
}

function stateOf({ status, reembedding, file_counts: files }) {
  const ended = files.completed + files.failed;
  const ingesting = status === "in_progress";
  const renewing = reembedding?.status === "in_progress";
  return [
    badge(renewing ? "new vectors" : ingesting ? "in progress" : "ready", renewing || ingesting ? "" : "good"),
    ingesting && el("progress", { max: files.total, value: ended, "aria-label": "Files that are ingested" }),
    ingesting && el("span", { class: "small" }, `${number(ended)} of ${number(files.total)} files`),
    renewing && el("progress", { max: Math.max(files.total, 1), value: reembedding.files_done, "aria-label": "Files with new vectors" }),
    renewing && el("span", { class: "small" }, `${number(reembedding.files_done)} of ${number(files.total)} files by ${reembedding.embedding_model}`),
    files.failed > 0 && el("span", { class: "wrong" }, `${number(files.failed)} files failed`),
    reembedding?.status === "completed" && el("span", { class: "small" }, `made anew ${moment(reembedding.ended_at)}`),
    reembedding?.last_error && el("span", { class: "wrong" }, reembedding.last_error.message),
  ];
}

function progressOf({ status, filename, progress: { chunks_done: done, chunks_total: all } }) {
  const bar = status === "in_progress" && all > 0 && el("progress", { max: all, value: done, "aria-label": `Progress of ${filename}` });
  return [bar, el("span", { class: "small" }, status === "in_progress" && all ? `${number(done)} of ${number(all)}` : number(done))];
}
