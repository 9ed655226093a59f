// Tables, dialogs, and figures as people read them.

import { byId, el, notify } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const number = (value) => (Number.isFinite(value) ? NUMBER.format(value) : "–");

export const bytes = (value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${number(value)} ${units[at]}`;
};

export const duration = (ms) => {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${number(ms / 1000)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
};

/** A time in seconds since 1970. */
export const moment = (seconds) => (Number.isFinite(seconds) ? new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") : "–");

export const badge = (text, kind = "") => el("span", { class: `badge ${kind}` }, text);

/** A button of a row, which is off while its work goes on. */
export function action(label, work, more = {}) {
  const { class: classes = "", ...rest } = more;
  const button = el("button", { type: "button", class: `button ${classes}`, ...rest }, label);
  button.addEventListener("click", () => busy(button, work));
  return button;
}

/** Do work that a button asked for, and tell of its failure. */
export async function busy(button, work) {
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    notify(error.message, "error");
  }
  button.disabled = false;
}

export const actions = (...buttons) => el("div", { class: "row" }, ...buttons);

/**
 * A table whose rows have keys. A column has a `title`, and either `text(row)`, or `nodes(row)` with `by(row)`: what these
 * nodes depend on. Only cells that change are made anew, so that a button keeps the focus while figures run.
 */
export class Table {
  #columns;
  #key;
  #rows = new Map();
  #body = el("tbody");
  #empty;

  constructor(place, caption, columns, key, empty) {
    this.#columns = columns;
    this.#key = key;
    this.#empty = el("p", { class: "empty" }, empty);
    const heads = columns.map(({ title, class: classes }) =>
      title ? el("th", { scope: "col", class: classes }, title) : el("td", {}, el("span", { class: "unseen" }, "Actions")),
    );
    this.#table = el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, ...heads)), this.#body);
    // What is wider than the window is reached by keyboard too.
    const frame = el("div", { class: "table", role: "region", tabIndex: 0, "aria-label": caption }, this.#table, this.#empty);
    byId(place).replaceChildren(frame);
    this.set([]);
  }
  #table;

  set(rows) {
    const keep = new Set();
    let before = null;
    for (const row of rows) {
      const key = this.#key(row);
      keep.add(key);
      const made = this.#rows.get(key) ?? this.#make(key);
      this.#fill(made, row);
      const next = before ? before.nextSibling : this.#body.firstChild;
      if (next !== made.element) this.#body.insertBefore(made.element, next);
      before = made.element;
    }
    for (const [key, made] of this.#rows) {
      if (keep.has(key)) continue;
      made.element.remove();
      this.#rows.delete(key);
    }
    this.#empty.hidden = rows.length > 0;
    this.#table.hidden = rows.length === 0;
  }

  /** Show a row that is there already as it is now. */
  update(row) {
    const made = this.#rows.get(this.#key(row));
    if (made) this.#fill(made, row);
  }

  #make(key) {
    const cells = this.#columns.map(({ class: classes }) => ({ element: el("td", { class: classes }), by: undefined }));
    const made = { element: el("tr", {}, ...cells.map(({ element }) => element)), cells };
    this.#rows.set(key, made);
    return made;
  }

  #fill(made, row) {
    this.#columns.forEach((column, at) => {
      const cell = made.cells[at];
      const by = column.text ? column.text(row) : JSON.stringify(column.by(row));
      if (by === cell.by) return;
      cell.by = by;
      if (column.text) cell.element.textContent = by;
      else cell.element.replaceChildren(...[column.nodes(row)].flat().filter(Boolean));
    });
  }
}

function shown(title, ...content) {
  const dialog = byId("dialog");
  dialog.replaceChildren(el("h2", { id: "dialog-title" }, title), ...content);
  // A secret does not stay in the page. The event comes late: another dialog may be open by then.
  dialog.onclose = () => dialog.open || dialog.replaceChildren();
  dialog.showModal();
  return dialog;
}

/** Ask whether to do something that cannot be taken back. */
export function confirmed(title, text, label) {
  return new Promise((resolve) => {
    const close = (answer) => () => {
      dialog.close();
      resolve(answer);
    };
    const buttons = actions(
      el("button", { type: "button", class: "button", onclick: close(false) }, "Cancel"),
      el("button", { type: "button", class: "button danger", onclick: close(true) }, label),
    );
    const dialog = shown(title, el("p", {}, text), buttons);
    dialog.oncancel = () => resolve(false);
  });
}

/** Show something to read. */
export function show(title, ...content) {
  const dialog = shown(title, ...content, actions(el("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Close")));
}

function control(field) {
  const common = { id: `field-${field.name}`, name: field.name };
  if (field.options) {
    const options = field.options.map(([value, text]) => el("option", { value, selected: value === (field.value ?? "") }, text));
    return el("select", common, ...options);
  }
  if (field.lines) return el("textarea", { ...common, rows: field.lines, class: "code-field", spellcheck: false, value: field.value ?? "" });
  if (field.check) return el("input", { ...common, type: "checkbox", checked: field.value === true });
  if (field.file) return el("input", { ...common, type: "file", accept: field.file, required: field.required === true });
  return el("input", { ...common, type: "text", value: field.value ?? "", required: field.required === true, spellcheck: false, autocomplete: "off", placeholder: field.placeholder });
}

function fieldView(field) {
  const input = control(field);
  const hint = field.hint && el("p", { class: "hint" }, field.hint);
  if (field.check) return el("div", { class: "field" }, el("label", { class: "check" }, input, field.label), hint);
  return el("div", { class: "field" }, el("label", { for: input.id }, field.label), input, hint);
}

/**
 * A form. `submit` gets the values by name, and may give what is to be done afterwards; while it fails, the form stays, with the reason.
 * A text or an element that it gives is shown in the form, which stays too.
 */
export function form(title, fields, label, submit) {
  const fault = el("p", { class: "fault", role: "alert" });
  const told = el("div", { class: "told", role: "status" });
  const send = el("button", { type: "submit", class: "button primary" }, label);
  const cancel = el("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel");
  const view = el("form", {}, ...fields.map(fieldView), fault, told, actions(cancel, send));
  view.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = {};
    for (const field of fields) {
      const input = view.elements[field.name];
      values[field.name] = field.check ? input.checked : field.file ? input.files[0] : input.value.trim();
    }
    send.disabled = true;
    try {
      fault.textContent = told.textContent = "";
      const afterwards = await submit(values);
      if (typeof afterwards === "string" || afterwards instanceof Node) {
        told.replaceChildren(afterwards);
      } else {
        dialog.close();
        afterwards?.();
      }
    } catch (error) {
      fault.textContent = error.message;
    }
    send.disabled = false;
  });
  const dialog = shown(title, view);
}

/** A whole number that a field holds; `undefined` if it is empty. */
export function whole(values, name) {
  const text = values[name];
  if (!text) return undefined;
  if (!/^-?\d+$/.test(text)) throw new Error(`${name} must be a whole number`);
  return Number(text);
}

/** Names with commas. */
export const names = (text) => text.split(",").map((name) => name.trim()).filter(Boolean);
