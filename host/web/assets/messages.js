// Messages as they are shown.

import { button, copyText, el, iconButton, pretty } from "./dom.js";
import { filesView } from "./attachments.js";
import { Markdown } from "./markdown.js";
import { Citations, Searches } from "./sources.js";
import { TokenStrip } from "./tokens.js";

const FINISHES = { length: "The limit of tokens was reached.", stopped: "Stopped.", content_filter: "Ended by a filter." };

/** A message of the user, which can be edited. `act` has what the buttons do. */
export function userView(message, act) {
  const body = el("div", { class: "bubble" }, message.content);
  const edit = iconButton("Edit this message", "edit", () => article.replaceChildren(editor()));
  const actions = el("div", { class: "actions" }, edit);
  const said = el("div", { class: "said" }, message.files.length > 0 && filesView(message.files), message.content && body);
  const article = el("article", { class: "message user", "aria-label": "You" }, said, actions);
  const editor = () => {
    const text = el("textarea", { value: message.content, rows: 3, "aria-label": "Edited message" });
    const back = () => article.replaceChildren(said, actions);
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") back();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        act.edit(text.value);
      }
    });
    queueMicrotask(() => text.focus());
    const send = button("Send again", () => act.edit(text.value), { class: "primary" });
    return el("div", { class: "editor" }, text, el("div", { class: "row" }, button("Cancel", back), send));
  };
  return { element: article, edit: () => edit.click() };
}

/** An answer, which grows. `act` has what the buttons do; `results` are those of its calls, by their ids. */
export class AnswerView {
  #answer;
  #act;
  #running;
  #text = el("div", { class: "text" });
  #markdown;
  #reasoning;
  #cards;
  #searches = new Searches();
  #citations = new Citations();
  #strip;
  #foot = el("div", { class: "foot" });

  constructor(answer, act, { running, results }) {
    this.#answer = answer;
    this.#act = act;
    this.#running = running;
    this.#reasoning = new Reasoning();
    this.#markdown = new Markdown(this.#text, act.around);
    this.#cards = new Cards(act, results);
    const parts = [this.#reasoning.element, this.#searches.element, this.#body(), this.#citations.element, this.#cards.element, this.#foot];
    this.element = el("article", { class: "message assistant", "aria-label": "Assistant" }, ...parts);
    this.update();
  }

  #body() {
    const { schema, tokens } = this.#answer;
    if (tokens) {
      this.#strip = new TokenStrip(tokens, this.#act.around);
      return this.#strip.element;
    }
    if (!schema) return this.#text;
    const pane = (title, body) => el("figure", {}, el("figcaption", {}, title), body);
    this.#text = el("pre", { class: "json", tabIndex: 0 });
    const wanted = el("pre", { class: "json", tabIndex: 0 }, pretty(schema));
    return el("div", { class: "beside" }, pane("Answer", this.#text), pane("Schema", wanted));
  }

  /** The answer is complete. */
  ended() {
    this.#running = false;
    this.update();
  }

  /** Show what has come since. */
  update() {
    const { content, reasoning, schema } = this.#answer;
    this.element.classList.toggle("running", this.#running);
    this.element.setAttribute("aria-busy", String(this.#running));
    this.#reasoning.update(reasoning, this.#running && !content);
    if (this.#strip) this.#strip.update();
    else if (schema) this.#text.textContent = this.#running ? content : pretty(content);
    else this.#markdown.update(content);
    this.#searches.update(this.#answer.searches);
    this.#citations.update(this.#answer);
    this.#cards.update(this.#answer, this.#running);
    if (!this.#running) this.#foot.replaceChildren(...this.#footer());
  }

  #footer() {
    const { error, finish, content } = this.#answer;
    const told = error || FINISHES[finish];
    return [
      told && el("p", { class: error ? "problem error" : "problem", role: error ? "alert" : undefined }, told),
      el(
        "div",
        { class: "actions" },
        iconButton("Copy the answer", "copy-icon", () => copyText(content)),
        iconButton("Regenerate", "retry", this.#act.regenerate),
        iconButton("What the model saw", "eye", this.#act.inspect),
        el("span", { class: "numbers" }, numbers(this.#answer)),
      ),
    ].filter(Boolean);
  }
}

/** `name of the model · 12 + 80 tokens · 41 tokens/s · first after 90 ms` */
function numbers({ asked, usage, first, total }) {
  const model = asked?.model ?? "";
  if (!usage) return model;
  const cached = usage.cached ? ` (${usage.cached} cached)` : "";
  const parts = [`${usage.prompt}${cached} + ${usage.completion} tokens`];
  const seconds = (total - first) / 1000;
  if (usage.completion > 1 && seconds > 0.001) parts.push(`${((usage.completion - 1) / seconds).toFixed(1)} tokens/s`);
  if (first !== undefined) parts.push(`first after ${Math.round(first)} ms`);
  return [model, ...parts].filter(Boolean).join(" · ");
}

/** Reasoning, folded. */
class Reasoning {
  #summary = el("summary");
  #text = el("div", { class: "thoughts" });
  #shown = 0;
  element = el("details", { class: "reasoning", hidden: true }, this.#summary, this.#text);

  update(text, running) {
    this.element.hidden = !text;
    this.element.classList.toggle("thinking", running);
    this.#summary.textContent = running ? "Thinking…" : "Reasoning";
    this.#text.append(text.slice(this.#shown));
    this.#shown = text.length;
  }
}

/** Calls of tools: those that the server ran with their results, and those that wait for one. */
class Cards {
  #act;
  #results;
  #made = 0;
  #written = "";
  element = el("div", { class: "cards", hidden: true });

  constructor(act, results) {
    this.#act = act;
    this.#results = results;
  }

  update({ calls, ran }, running) {
    const known = JSON.stringify([calls, ran.length, running]);
    if (known === this.#written) return;
    this.#written = known;
    this.element.hidden = !calls.length && !ran.length;
    // Calls of the server are listed twice where they were not run: as calls, and with their outcome.
    const done = new Set(ran.map((call) => call.id));
    const open = calls.filter((call) => !done.has(call.id));
    const cards = [...ran.map((call) => card(call, outcome(call))), ...open.map((call) => this.#open(call, running))];
    const waits = !running && open.some((call) => !this.#results?.has(call.id));
    if (waits) cards.push(button("Send results", () => this.#send(open), { class: "primary" }));
    this.element.replaceChildren(...cards);
  }

  #open(call, running) {
    const known = this.#results?.get(call.id);
    if (known !== undefined) return card(call, result("Result", known));
    if (running) return card(call);
    const field = el("textarea", { rows: 2, placeholder: "What the tool returns", "aria-label": `Result of ${call.name}` });
    field.dataset.call = call.id;
    return card(call, el("label", { class: "result" }, "Result", field));
  }

  #send(open) {
    const fields = [...this.element.querySelectorAll("textarea")];
    const of = (id) => fields.find((field) => field.dataset.call === id)?.value ?? "";
    this.#act.results(open.map((call) => ({ role: "tool", call: call.id, content: of(call.id) })));
  }
}

const result = (title, text) => el("div", { class: "result" }, title, el("pre", { tabIndex: 0 }, pretty(text)));

const outcome = (call) => result(`The server’s tool: ${call.outcome.replaceAll("_", " ")}`, call.output);

function card(call, ...parts) {
  const name = el("header", {}, el("span", { class: "icon tool", "aria-hidden": "true" }), el("code", {}, call.name));
  const given = el("pre", { tabIndex: 0, "aria-label": "Arguments" }, pretty(call.arguments));
  return el("section", { class: "card", "aria-label": "Call of a tool" }, name, given, ...parts);
}
