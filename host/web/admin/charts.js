// Lines of figures over the last two minutes.

import { el } from "./dom.js";

const POINTS = 120;
const [WIDTH, HEIGHT] = [240, 60];

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A chart of one or two figures that are pushed once a second. `null` leaves a gap. */
export class Chart {
  #series;
  #lines;
  #format;
  #drawing;
  #value = el("span", { class: "value" }, "–");
  #most = el("span", {}, "");
  #title;
  #least;

  constructor(title, names, format, least = 1) {
    this.#title = title;
    this.#format = format;
    this.#least = least;
    this.#series = names.map(() => []);
    this.#lines = names.map((_, at) => svg("polyline", { class: at ? "second" : "first", points: "", "vector-effect": "non-scaling-stroke" }));
    const ground = svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    this.#drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, ground, ...this.#lines);
    const legend = names.length > 1 ? `${names[0]} ―, ${names[1]} ┄` : "last two minutes";
    this.element = el("figure", { class: "chart" }, el("figcaption", {}, el("span", {}, title), this.#value), this.#drawing, el("div", { class: "legend" }, el("span", {}, legend), this.#most));
  }

  push(...values) {
    this.#series.forEach((series, at) => {
      series.push(values[at] ?? null);
      if (series.length > POINTS) series.shift();
    });
    const known = this.#series.flat().filter((value) => value !== null);
    const most = Math.max(this.#least, ...known);
    this.#series.forEach((series, at) => this.#lines[at].setAttribute("points", pointsOf(series, most)));
    const now = values.map((value) => (value === null || value === undefined ? "–" : this.#format(value))).join(" / ");
    this.#value.textContent = now;
    this.#most.textContent = `to ${this.#format(most)}`;
    this.#drawing.setAttribute("aria-label", `${this.#title}: now ${now}`);
  }
}

/** Lines of a chart whose names come and go. */
const MOST_NAMES = 3;

/** A chart of the figures that were largest of late, each with a name, which are pushed once a second. */
export class NamedChart {
  #series = new Map();
  #lines = ["first", "second", "third"].map((name) => svg("polyline", { class: name, points: "", "vector-effect": "non-scaling-stroke" }));
  #drawing;
  #legend = el("span", {}, "");
  #most = el("span", {}, "");
  #value = el("span", { class: "value" }, "–");
  #title;

  constructor(title) {
    this.#title = title;
    const ground = svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    this.#drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, ground, ...this.#lines);
    this.element = el("figure", { class: "chart" }, el("figcaption", {}, el("span", {}, title), this.#value), this.#drawing, el("div", { class: "legend" }, this.#legend, this.#most));
  }

  /** Figures by their names; a name that is not there has none. */
  push(figures) {
    for (const name of figures.keys()) if (!this.#series.has(name)) this.#series.set(name, []);
    for (const [name, series] of this.#series) {
      series.push(figures.get(name) ?? 0);
      if (series.length > POINTS) series.shift();
      if (!series.some((value) => value > 0)) this.#series.delete(name);
    }
    const sum = (series) => series.reduce((all, value) => all + value, 0);
    const largest = [...this.#series].sort(([, one], [, other]) => sum(other) - sum(one)).slice(0, MOST_NAMES);
    const most = Math.max(1, ...largest.flatMap(([, series]) => series));
    this.#lines.forEach((line, at) => line.setAttribute("points", largest[at] ? pointsOf(largest[at][1], most) : ""));
    this.#legend.textContent = largest.map(([name], at) => `${name} ${["―", "┄", "⋯"][at]}`).join(", ") || "last two minutes";
    this.#most.textContent = `to ${most}`;
    const now = [...figures.values()].reduce((all, value) => all + value, 0);
    this.#value.textContent = String(now);
    this.#drawing.setAttribute("aria-label", `${this.#title}: now ${now}`);
  }
}

function pointsOf(series, most) {
  const step = WIDTH / (POINTS - 1);
  const first = POINTS - series.length;
  const points = series.map((value, at) => (value === null ? "" : `${((first + at) * step).toFixed(1)},${(HEIGHT - (value / most) * HEIGHT).toFixed(1)}`));
  return points.filter(Boolean).join(" ");
}
