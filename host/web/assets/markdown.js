// The Markdown that models write, as elements. It grows with a text that is streamed: finished blocks stay as they
// are, and only the last one is made again. Markup in the text is text; images are links, so nothing is loaded.

import { copyText, el } from "./dom.js";

/** Characters of a block beyond which it is plain text: what is read at each frame has a bound. */
const BLOCK = 20_000;
/** Quotes and lists inside one another. */
const DEPTH = 6;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,32})/;
const HEADING = /^(#{1,6}) +(.*?)#*$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,}) *$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)$/;
const ROW = /^ *\|?.*\|.*$/;
const DIVIDER = /^ *\|?[ :|-]*-[ :|-]*$/;

/** Characters that are read in one frame. */
const FRAME = 2048;

/** Text that grows inside an element. `around` does what makes it longer. */
export class Markdown {
  #root;
  #around;
  #text = "";
  #shown = 0;
  #asked = false;
  #done = 0;
  #last = [];

  constructor(root, around) {
    this.#root = root;
    this.#around = around;
  }

  /** Show the text, which begins with the one that was shown before. Of much at once, the rest comes in the frames that follow. */
  update(text) {
    this.#text = text;
    if (this.#asked) return;
    this.#shown = Math.min(text.length, this.#shown + FRAME);
    this.#show(text.slice(0, this.#shown));
    if (this.#shown === text.length) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#around(() => this.update(this.#text));
    });
  }

  #show(text) {
    const end = lastBoundary(text, this.#done);
    this.#last.forEach((node) => node.remove());
    if (end > this.#done) {
      this.#root.append(...blocks(text.slice(this.#done, end), 0));
      this.#done = end;
    }
    this.#last = blocks(text.slice(this.#done), 0);
    this.#root.append(...this.#last);
  }
}

/** End of the last block behind `from` that no further text can change. */
function lastBoundary(text, from) {
  let [end, fence, at] = [from, "", from];
  for (;;) {
    const next = text.indexOf("\n", at);
    if (next < 0) return end;
    const line = text.slice(at, next);
    if (fence) {
      if (closes(line, fence)) [fence, end] = ["", next + 1];
    } else if (FENCE.test(line)) {
      fence = FENCE.exec(line)[1];
    } else if (!line.trim()) {
      end = next + 1;
    }
    at = next + 1;
  }
}

const closes = (line, fence) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");

/** Elements of some blocks. */
function blocks(text, depth) {
  const lines = text.split("\n");
  const made = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, next] = block(lines, at, depth);
    made.push(node);
    at = next;
  }
  return made;
}

function block(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [el(`h${Math.min(heading[1].length + 2, 6)}`, {}, ...inline(heading[2])), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (depth < DEPTH && line.startsWith(">")) return quote(lines, at, depth);
  if (depth < DEPTH && ITEM.test(line)) return items(lines, at, depth);
  if (ROW.test(line) && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("|")) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, [, fence, language]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).join("\n");
  const copy = el("button", { type: "button", class: "copy", onclick: () => copyText(text) }, "Copy");
  const head = el("div", { class: "code-head" }, el("span", {}, language || "code"), copy);
  // Keyboards scroll what they can reach.
  const body = el("pre", { tabIndex: 0 }, el("code", {}, text));
  return [el("div", { class: "code" }, head, body), end + 1];
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^> ?/, ""));
  return [el("blockquote", {}, ...blocks(inner.join("\n"), depth + 1)), end];
}

function items(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const made = el(ordered ? "ol" : "ul", ordered ? { start: parseInt(mark, 10) } : {});
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length > indent.length + 1 || item[1].length < indent.length) break;
    if (/\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]];
    for (at += 1; at < lines.length && deeper(lines[at], indent.length); at += 1) {
      inner.push(lines[at].slice(Math.min(indent.length + 2, lines[at].search(/\S/))));
    }
    const parts = blocks(inner.join("\n"), depth + 1);
    // An item of one paragraph is that text.
    const plain = parts[0]?.tagName === "P" ? [...parts.shift().childNodes] : [];
    made.append(el("li", {}, ...plain, ...parts));
  }
  return [made, at];
}

const deeper = (line, indent) => line.trim() !== "" && line.search(/\S/) > indent + 1;

function table(lines, at) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 64).map((cell) => cell.trim());
  const row = (line, kind) => el("tr", {}, ...cells(line).map((cell) => el(kind, {}, ...inline(cell))));
  const head = el("thead", {}, row(lines[at], "th"));
  const body = el("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) body.append(row(lines[at], "td"));
  return [el("div", { class: "table", tabIndex: 0 }, el("table", {}, head, body)), at];
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  const ends = (line) =>
    !line.trim() || FENCE.test(line) || HEADING.test(line) || (depth < DEPTH && (line.startsWith(">") || ITEM.test(line)));
  while (end < lines.length && !ends(lines[end])) end += 1;
  return [el("p", {}, ...inline(lines.slice(at, end).join("\n"))), end];
}

/** Marks of spans, the longer ones first. */
const SPANS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "s"],
  ["*", "em"],
  ["_", "em"],
];

/** Texts and spans of one block. */
function inline(text, depth = 0) {
  if (text.length > BLOCK || depth > DEPTH) return [text];
  const made = [];
  let plain = 0;
  for (let at = 0; at < text.length; ) {
    const found = span(text, at, depth);
    if (!found) {
      at += 1;
      continue;
    }
    const [node, end] = found;
    if (at > plain) made.push(text.slice(plain, at));
    made.push(node);
    plain = at = end;
  }
  if (plain < text.length) made.push(text.slice(plain));
  return made;
}

/** The span that begins here, and where it ends. */
function span(text, at, depth) {
  switch (text[at]) {
    case "\\":
      return /[\\`*_~[\]()#+.!|-]/.test(text[at + 1] ?? "") ? [text[at + 1], at + 2] : undefined;
    case "`":
      return codeSpan(text, at);
    case "!":
      return text[at + 1] === "[" ? link(text, at + 1, depth) : undefined;
    case "[":
      return link(text, at, depth);
    case "h":
      return address(text, at);
    case "*":
    case "_":
    case "~":
      return emphasis(text, at, depth);
    default:
      return undefined;
  }
}

function codeSpan(text, at) {
  const mark = /^`+/.exec(text.slice(at, at + 8))[0];
  const end = text.indexOf(mark, at + mark.length);
  if (end < 0 || end === at + mark.length) return undefined;
  return [el("code", {}, text.slice(at + mark.length, end).trim()), end + mark.length];
}

function emphasis(text, at, depth) {
  const [mark, name] = SPANS.find(([mark]) => text.startsWith(mark, at)) ?? [];
  // A name_like_this has no emphasis in it, nor has 2 * 3 * 4.
  if (!mark || (mark[0] === "_" && /\w/.test(text[at - 1] ?? "")) || /\s/.test(text[at + mark.length] ?? " ")) return undefined;
  const end = text.indexOf(mark, at + mark.length + 1);
  if (end < 0 || /\s/.test(text[end - 1])) return undefined;
  return [el(name, {}, ...inline(text.slice(at + mark.length, end), depth + 1)), end + mark.length];
}

function link(text, at, depth) {
  const close = text.indexOf("](", at);
  const end = close < 0 ? -1 : text.indexOf(")", close);
  if (end < 0 || close - at > 500 || end - close > 2000) return undefined;
  const made = anchor(text.slice(close + 2, end).split(" ")[0], inline(text.slice(at + 1, close), depth + 1));
  return made && [made, end + 1];
}

function address(text, at) {
  if (/\w/.test(text[at - 1] ?? "")) return undefined;
  const found = /^https?:\/\/[^\s<>"'`]{1,2000}/.exec(text.slice(at, at + 2010))?.[0].replace(/[.,;:!?)\]*_]+$/, "");
  const made = found && anchor(found, [found]);
  return made && [made, at + found.length];
}

/** A link that leads to another place on the web, in a tab that learns nothing of this one. */
function anchor(target, children) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return undefined;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return undefined;
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}
