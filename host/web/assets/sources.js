// Searches in documents and the passages that an answer cites.

import { el } from "./dom.js";

const text = (value) => (typeof value === "string" ? value : "");
const whole = (value) => (Number.isSafeInteger(value) && value >= 0 ? value : undefined);
const list = (value, most) => (Array.isArray(value) ? value.slice(0, most) : []);

const placeOf = (value) => ({ filename: text(value?.filename), start: whole(value?.start), end: whole(value?.end), page: whole(value?.page) });

/** A search as it is kept, rebuilt from whatever a server or a file says. */
export const searchOf = (value) => ({
  query: text(value?.query),
  failed: value?.failed === true,
  results: list(value?.results, 50).map((result) => ({
    ...placeOf(result),
    file_id: text(result?.file_id),
    number: whole(result?.number),
    score: Number.isFinite(result?.score) ? result.score : undefined,
    text: text(result?.text),
  })),
});

/** A citation as it is kept. */
export const citationOf = (value) => ({ ...placeOf(value), index: whole(value?.index) });

/** `bytes 120 to 480, page 3` */
function place({ start, end, page }) {
  const bytes = start !== undefined && end !== undefined ? `bytes ${start} to ${end}` : "";
  return [bytes, page !== undefined ? `page ${page}` : ""].filter(Boolean).join(", ");
}

function resultView(result) {
  const number = result.number === undefined ? "" : `[${result.number}] `;
  const score = result.score === undefined ? "" : `, ${result.score.toFixed(3)}`;
  const title = el("summary", {}, el("span", {}, `${number}${result.filename}`), el("span", { class: "place" }, `${place(result)}${score}`));
  return el("li", {}, el("details", {}, title, el("pre", { tabIndex: 0 }, result.text)));
}

function searchView({ query, results, failed }) {
  const icon = el("span", { class: "icon eye", "aria-hidden": "true" });
  const found = failed ? "failed" : results.length === 1 ? "1 passage" : `${results.length} passages`;
  const head = el("header", {}, icon, el("span", {}, `Search: ${query}`), el("span", { class: "place" }, found));
  return el("section", { class: "card search", "aria-label": "Search in documents" }, head, results.length > 0 && el("ol", { class: "passages" }, ...results.map(resultView)));
}

/** Searches of an answer as cards. */
export class Searches {
  #made = 0;
  element = el("div", { class: "cards", hidden: true });

  update(searches) {
    this.element.hidden = searches.length === 0;
    this.element.append(...searches.slice(this.#made).map(searchView));
    this.#made = searches.length;
  }
}

/** The passages that an answer cites, each once, with what stands in it. */
export class Citations {
  #made = 0;
  element = el("div", { class: "citations", hidden: true });

  update({ citations, searches }) {
    this.element.hidden = citations.length === 0;
    if (citations.length === this.#made) return;
    this.#made = citations.length;
    const found = searches.flatMap(({ results }) => results);
    const same = (one, other) => one.filename === other.filename && one.start === other.start && one.end === other.end;
    const once = citations.filter((one, at) => citations.findIndex((other) => same(one, other)) === at);
    const cited = once.map((citation) => found.find((result) => same(result, citation)) ?? { ...citation, text: "" });
    this.element.replaceChildren(el("h3", {}, "Sources"), el("ol", { class: "passages" }, ...cited.map(resultView)));
  }
}
