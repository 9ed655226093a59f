// One thread of a conversation: a model and the messages that it has seen.

import { announce, eachFrame, el } from "./dom.js";
import { AnswerView, userView } from "./messages.js";
import { storesOf } from "./documents.js";
import { fill, newAnswer, requestOf, searchBehind, searchIn } from "./turns.js";

/** Distance from the end, in pixels, within which the end is followed. */
const NEAR = 80;

/** A column. `hooks` are `settings()`, `changed()`, `failed(message)` and `inspect(request, about)`. */
export class Column {
  #hooks;
  #list = el("div", { class: "messages", role: "log", "aria-live": "off" });
  #stop;
  #views = [];

  constructor(thread, hooks, label) {
    this.thread = thread;
    this.#hooks = hooks;
    this.element = el("section", { class: "column", tabIndex: 0, "aria-label": label }, this.#list);
    this.draw();
  }

  get running() {
    return this.#stop !== undefined;
  }

  /** Make all messages anew. */
  draw() {
    const { messages } = this.thread;
    const results = new Map(messages.filter(({ role }) => role === "tool").map(({ call, content }) => [call, content]));
    this.#views = messages.map((message, at) => this.#view(message, at, results, false));
    const shown = this.#views.filter(Boolean).map((view) => view.element);
    this.#list.replaceChildren(...(shown.length ? shown : [this.#hooks.welcome()]));
    this.#follow();
  }

  #view(message, at, results, running) {
    // The result of a tool is shown in the card of its call.
    if (message.role === "tool") return undefined;
    if (message.role === "user") return userView(message, { edit: (text) => this.#edit(at, text) });
    const act = {
      regenerate: () => this.#again(at),
      inspect: () => this.#inspect(at),
      around: (work) => this.#following(work),
      results: (messages) => this.#go([...this.thread.messages.slice(0, at + 1), ...messages]),
    };
    return new AnswerView(message, act, { running, results });
  }

  /** Send a message of the user. */
  send(text, files) {
    return this.#go([...this.thread.messages, { role: "user", content: text, files }]);
  }

  /** End the answer that is under way. */
  stop() {
    this.#stop?.abort();
  }

  /** Ask for the last answer again. */
  regenerate() {
    const at = this.thread.messages.findLastIndex(({ role }) => role === "assistant");
    if (at >= 0) this.#again(at);
  }

  /** Open the last message of the user for editing. */
  editLast() {
    const at = this.thread.messages.findLastIndex(({ role }) => role === "user");
    this.#views[at]?.edit();
  }

  #again(at) {
    return this.#go(this.thread.messages.slice(0, at));
  }

  #edit(at, text) {
    // Files that were not kept cannot be sent again.
    const files = this.thread.messages[at].files.filter(({ data }) => data);
    if (!text.trim() && !files.length) return undefined;
    return this.#go([...this.thread.messages.slice(0, at), { role: "user", content: text, files }]);
  }

  /** What would be asked for the next message. */
  request() {
    return requestOf(this.thread, this.#hooks.settings());
  }

  /** Show the prompt of an answer, by the model and the settings that it was asked with. */
  #inspect(at) {
    const answer = this.thread.messages[at];
    const { asked } = answer;
    const { model, settings } = asked ?? { model: this.thread.model, settings: this.#hooks.settings() };
    try {
      const before = this.thread.messages.slice(0, at);
      const search = searchBehind(storesOf(settings), before, answer);
      this.#hooks.inspect(requestOf({ model, messages: before }, settings), { search, unknown: !asked });
    } catch (error) {
      this.#hooks.failed(error.message);
    }
  }

  /** Ask for an answer to these messages, which take the place of those of the thread. */
  async #go(messages) {
    if (this.running) return;
    const settings = this.#hooks.settings();
    let request;
    try {
      request = requestOf({ model: this.thread.model, messages }, settings);
    } catch (error) {
      this.#hooks.failed(error.message);
      return;
    }
    const search = searchIn(storesOf(settings), [...messages]);
    const answer = newAnswer(this.thread.model, settings);
    this.thread.messages = messages;
    this.draw();
    messages.push(answer);
    const view = this.#view(answer, messages.length - 1, undefined, true);
    this.#views.push(view);
    this.#list.append(view.element);
    this.#follow();
    this.#stop = new AbortController();
    this.#hooks.changed();
    const show = eachFrame(() => {
      if (this.running) this.#following(() => view.update());
    });
    await fill(answer, { request, search }, this.#stop.signal, show);
    this.#stop = undefined;
    this.#following(() => view.ended());
    announce(answer.error ? `Failed: ${answer.error}` : "The answer is complete.");
    this.#hooks.changed();
  }

  /** Do what makes the messages longer, and stay at their end if that is where the reader is. */
  #following(work) {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    const near = scrollHeight - scrollTop - clientHeight < NEAR;
    work();
    if (near) this.#follow();
  }

  #follow() {
    this.element.scrollTop = this.element.scrollHeight;
  }
}
