// Tokens with their probabilities. The strip is one stop of the Tab key; arrows move from token to token.

import { el } from "./dom.js";

/** `99.3 %` of a log-probability. */
export function percent(logprob) {
  const value = Math.exp(logprob) * 100;
  return `${value >= 99.95 ? "100" : value >= 0.1 ? value.toFixed(1) : "< 0.1"} %`;
}

/** A token as people see it: white space has marks. */
const visible = (token) => token.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "·") || "∅";

/** Five steps of likelihood, as the style sheet colours them. */
const step = (logprob) => Math.min(4, Math.floor(Math.max(0, 1 - Math.exp(logprob)) * 5));

/** Tokens of a group. What is far from the window is not laid out, group by group. */
const GROUP = 256;
/** Tokens that are shown in one frame. */
const FRAME = 256;

/** A strip of tokens that grows. */
export class TokenStrip {
  #tokens;
  #spans = [];
  #places = new WeakMap();
  #group;
  #around;
  #asked = false;
  #current = 0;
  #strip = el("div", { class: "tokens", tabIndex: 0, role: "group" });
  #detail = el("div", { class: "token-detail", "aria-live": "polite" }, "Point at a token, or use the arrow keys.");

  /** `around` does what makes it longer. */
  constructor(tokens, around) {
    this.#tokens = tokens;
    this.#around = around;
    this.element = el("div", { class: "token-view" }, this.#strip, this.#detail);
    this.#strip.setAttribute("aria-label", "Tokens with probabilities");
    this.#strip.addEventListener("mouseover", ({ target }) => this.#point(target));
    this.#strip.addEventListener("click", ({ target }) => this.#point(target));
    this.#strip.addEventListener("keydown", (event) => this.#move(event));
    this.update();
  }

  /** Show the tokens that came since: many of them in the frames that follow. */
  update() {
    if (this.#asked) return;
    const begin = this.#spans.length;
    for (const token of this.#tokens.slice(begin, begin + FRAME)) this.#add(token);
    if (this.#spans.length === this.#tokens.length) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#around(() => this.update());
    });
  }

  #add({ token, logprob, reasoning }) {
    if (this.#spans.length % GROUP === 0) {
      this.#group = el("div", { class: "token-group" });
      this.#strip.append(this.#group);
    }
    const span = el("span", { class: `token p${step(logprob)}${reasoning ? " thought" : ""}` }, token);
    this.#places.set(span, this.#spans.length);
    this.#spans.push(span);
    this.#group.append(span);
  }

  #point(target) {
    const at = this.#places.get(target);
    if (at !== undefined) this.#show(at);
  }

  #move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#show(Math.min(this.#spans.length - 1, Math.max(0, this.#current + step)));
  }

  #show(at) {
    this.#spans[this.#current]?.classList.remove("current");
    this.#spans[at]?.classList.add("current");
    this.#current = at;
    const token = this.#tokens[at];
    if (!token) return;
    const row = ({ token, logprob }, chosen) =>
      el(
        "li",
        { class: chosen ? "chosen" : "" },
        el("code", {}, visible(token)),
        el("meter", { min: 0, max: 1, value: Math.exp(logprob), "aria-label": "probability" }),
        el("span", {}, percent(logprob)),
      );
    const others = token.top.filter((other) => other.token !== token.token);
    this.#detail.replaceChildren(el("ol", {}, row(token, true), ...others.map((other) => row(other, false))));
  }
}
