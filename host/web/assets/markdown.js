// The Markdown that models write, as elements. It grows with a text that is streamed: finished blocks stay as they are, a
// paragraph and a block of code grow at their ends, and other blocks are made again until they are finished. Markup in the
// text is text; images are links, so nothing is loaded.

import { copyText, el } from "./dom.js";

/** Characters of a block within others beyond which it is plain text: what is read at each frame has a bound. */
const BLOCK = 20_000;
/** Characters of a span with its marks; marks that are further apart are text. So only so much of a paragraph can still change. */
const SPAN = 1000;
/** Characters of the text and of the address of a link. */
const LABEL = 500;
const ADDRESS = 2000;
/** Quotes and lists inside one another. */
const DEPTH = 6;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,32})/;
const HEADING = /^(#{1,6}) +(.*?)#*$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,}) *$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)$/;
const ROW = /^ *\|?.*\|.*$/;
const DIVIDER = /^ *\|?[ :|-]*-[ :|-]*$/;
/** The beginning of a line that does not yet tell what the line is. */
const UNTOLD = /^ *(?:[-*+_`~#>|: ]*|\d{1,9}[.)]?) *$/;
/** The beginning of an address, to the end of what there is. */
const BEGUN = /^h(?:$|t(?:$|t(?:$|p(?:$|s?(?:$|:(?:$|\/(?:$|\/[^\s<>"'`]{0,1999}$)))))))/;

/** Characters that are read in one frame. */
const FRAME = 2048;

/** Text that grows inside an element. `around` does what makes it longer. */
export class Markdown {
  #root;
  #around;
  #text = "";
  #shown = 0;
  #asked = false;
  /** End of the finished blocks. */
  #done = 0;
  /** The block behind them, where it is one that grows. */
  #open;
  /** What else is behind them. */
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
    this.#last.forEach((node) => node.remove());
    this.#last = [];
    for (;;) {
      this.#open ??= this.#opened(text);
      const end = this.#open ? this.#open.grow(text) : this.#finished(text);
      if (end === undefined) return;
      // What has turned out to be another block is taken back.
      if (end < 0) this.#open.element.remove();
      else this.#done = end;
      this.#open = undefined;
    }
  }

  /** A block that grows, if one begins behind the finished ones. */
  #opened(text) {
    const next = text.indexOf("\n", this.#done);
    const line = text.slice(this.#done, next < 0 ? undefined : next);
    const fence = next < 0 ? null : FENCE.exec(line);
    if (!fence && (!isText(line) || (next < 0 && UNTOLD.test(line)) || (next >= 0 && dividedBy(line, lineAt(text, next + 1))))) return undefined;
    const open = fence ? new OpenCode(next + 1, fence) : new OpenParagraph(this.#done);
    this.#root.append(open.element);
    return open;
  }

  /** Show the rest, whose first block does not grow. The end of that block, if no further text can change it. */
  #finished(text) {
    const lines = text.slice(this.#done).split("\n");
    const skipped = lines.findIndex((line) => line.trim());
    if (skipped > 0) return this.#done + lines.slice(0, skipped).join("\n").length + 1;
    if (skipped < 0) return undefined;
    const [node, next] = block(lines, 0, 0);
    this.#root.append(node);
    const known = next < lines.length - 1 || (next < lines.length && told(node, lines[next]));
    if (known) return this.#done + lines.slice(0, next).join("\n").length + 1;
    this.#last = [node, ...blocks(lines.slice(next).join("\n"), 0)];
    this.#root.append(...this.#last);
    return undefined;
  }
}

/** The line that begins there, of what there is. */
function lineAt(text, from) {
  const next = text.indexOf("\n", from);
  return text.slice(from, next < 0 ? undefined : next);
}

/** Whether a line ends a paragraph before it. */
const ends = (line, depth) => !line.trim() || FENCE.test(line) || HEADING.test(line) || (depth < DEPTH && (line.startsWith(">") || ITEM.test(line)));

/** Whether a line, of what there is, begins a paragraph. */
const isText = (line) => !ends(line, 0) && !RULE.test(line);

/** Whether the next line makes a line the head of a table. */
const dividedBy = (line, next) => DIVIDER.test(next) && next.includes("|") && !ITEM.test(next) && ROW.test(line);

/** Whether a line is a row of the table above it. */
const isRow = (line) => line.slice(0, SPAN).includes("|");

/** Whether a line, of what there is, is behind a block and begins a paragraph. */
function told(block, line) {
  if (!isText(line) || UNTOLD.test(line)) return false;
  return !block.classList.contains("table") || line.length >= SPAN;
}

/** A block of code that grows. */
class OpenCode {
  /** End of what is shown or will not be. */
  #from;
  #fence;
  #text = document.createTextNode("");
  #empty = true;
  /** The line that is being written has begun to be shown. */
  #begun = false;

  constructor(from, [, fence, language]) {
    [this.#from, this.#fence] = [from, fence];
    this.element = codeView(language, this.#text);
  }

  /** Take what has come; the end of the block, if it has ended. */
  grow(text) {
    let [added, end] = ["", undefined];
    const add = (part, ended) => {
      added += (this.#begun || this.#empty ? "" : "\n") + part;
      [this.#empty, this.#begun] = [false, !ended];
    };
    for (let next; end === undefined && (next = text.indexOf("\n", this.#from)) >= 0; this.#from = next + 1) {
      const line = text.slice(this.#from, next);
      if (!this.#begun && closes(line, this.#fence)) end = next + 1;
      else add(line, true);
    }
    const line = text.slice(this.#from);
    // The last line may be the one that closes.
    if (end === undefined && (this.#begun || line.replaceAll(this.#fence[0], "").trim())) {
      add(line, false);
      this.#from = text.length;
    }
    if (added) this.#text.appendData(added);
    return end;
  }
}

/** A paragraph that grows. What no further text can change is put in once; the rest is bounded by the length of a span. */
class OpenParagraph {
  element = el("p");
  #from;
  /** Beginning of the last line. */
  #line;
  /** End of what is known to have no further end of a line. */
  #scanned;
  #lines = 0;
  /** End of what stays as it is. */
  #settled;
  #unsettled = [];

  constructor(from) {
    this.#from = this.#line = this.#scanned = this.#settled = from;
  }

  /** Take what has come; the end of the block, if it has ended, or -1 if it is another block. */
  grow(text) {
    for (;;) {
      const next = text.indexOf("\n", this.#scanned);
      this.#scanned = next < 0 ? text.length : next;
      const line = text.slice(this.#line, this.#scanned);
      if (this.#lines > 0 && (next >= 0 || line.trim()) && ends(line, 0)) return this.#end(text);
      if (this.#lines === 1 && dividedBy(lineAt(text, this.#from), line)) return -1;
      if (next < 0) {
        const told = this.#lines === 0 || !UNTOLD.test(line);
        this.#fill(text, line.trim() ? text.length : this.#line - 1, told ? text.length : this.#line - 1);
        return undefined;
      }
      this.#lines += 1;
      this.#line = this.#scanned = next + 1;
    }
  }

  #end(text) {
    this.#fill(text, this.#line - 1, this.#line - 1, true);
    return this.#line;
  }

  /** Show the text up to `end`, of which at most what lies before `told` stays. `ended`: nothing will follow. */
  #fill(text, end, told, ended = false) {
    this.#unsettled.forEach((node) => node.remove());
    // One character more: what lies before a mark says what it is.
    const before = this.#settled > this.#from ? 1 : 0;
    const part = text.slice(this.#settled - before, end);
    const [made, at] = spans(part, before, ended ? Infinity : told - this.#settled + before, 0, !ended);
    for (const node of made) this.#append(node);
    this.#settled += at - before;
    this.#unsettled = spans(part, at, Infinity, 0, false)[0].map((node) => (typeof node === "string" ? document.createTextNode(node) : node));
    this.element.append(...this.#unsettled);
  }

  #append(node) {
    const last = this.element.lastChild;
    if (typeof node === "string" && last?.nodeType === Node.TEXT_NODE) last.appendData(node);
    else this.element.append(node);
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
  if (dividedBy(line, lines[at + 1] ?? "")) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, [, fence, language]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  return [codeView(language, document.createTextNode(lines.slice(at + 1, end).join("\n"))), end + 1];
}

function codeView(language, text) {
  const copy = el("button", { type: "button", class: "copy", onclick: () => copyText(text.data) }, "Copy");
  const head = el("div", { class: "code-head" }, el("span", {}, language || "code"), copy);
  // Keyboards scroll what they can reach.
  const body = el("pre", { tabIndex: 0 }, el("code", {}, text));
  return el("div", { class: "code" }, head, body);
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
  for (at += 2; at < lines.length && isRow(lines[at]); at += 1) body.append(row(lines[at], "td"));
  return [el("div", { class: "table", tabIndex: 0 }, el("table", {}, head, body)), at];
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !ends(lines[end], depth)) end += 1;
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
  return spans(text, 0, Infinity, depth, false)[0];
}

/**
 * Texts and spans from `at` on, and how far they reach: to the end, to `told`, or with `grows` to where further text could make or
 * change a span.
 */
function spans(text, at, told, depth, grows) {
  const made = [];
  let plain = at;
  while (at < text.length && at < told) {
    if (grows && open(text, at)) break;
    const found = span(text, at, depth);
    if (!found) {
      at += 1;
      continue;
    }
    const [node, end] = found;
    if (end > told) break;
    if (at > plain) made.push(text.slice(plain, at));
    made.push(node);
    plain = at = end;
  }
  if (plain < at) made.push(text.slice(plain, at));
  return [made, at];
}

/** Whether further text could make a span of what begins here, or make it longer. */
function open(text, at) {
  const left = text.length - at;
  switch (text[at]) {
    case "\\":
      return left < 2;
    case "`": {
      const mark = marks(text, at);
      return left === mark.length || (left < SPAN && text.indexOf(mark, at + mark.length) < 0);
    }
    case "!":
      return left < 2 || (text[at + 1] === "[" && openLink(text, at + 1));
    case "[":
      return openLink(text, at);
    case "<":
      return text.length - at < 2 || BEGUN.test(text.slice(at + 1, at + 2011));
    case "h":
      return !/\w/.test(text[at - 1] ?? "") && BEGUN.test(text.slice(at, at + 2010));
    case "*":
    case "_":
    case "~": {
      if (left < 3) return true;
      const mark = emphasised(text, at);
      if (mark === undefined || left >= SPAN) return false;
      const end = ending(text, mark, at);
      return end < 0 || (mark[0] === "_" && end + mark.length === text.length);
    }
    default:
      return false;
  }
}

function openLink(text, at) {
  const close = text.indexOf("](", at);
  if (close < 0) return text.length - at < LABEL + 2;
  return close - at <= LABEL && text.indexOf(")", close) < 0 && text.length - close <= ADDRESS;
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
    case "<":
      return bracketed(text, at);
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

const marks = (text, at) => /^`+/.exec(text.slice(at, at + 8))[0];

function codeSpan(text, at) {
  const mark = marks(text, at);
  const end = text.indexOf(mark, at + mark.length);
  if (end < 0 || end === at + mark.length || end + mark.length - at > SPAN) return undefined;
  return [el("code", {}, text.slice(at + mark.length, end).trim()), end + mark.length];
}

/** The mark of emphasis that begins here. A name_like_this has none in it, nor has 2 * 3 * 4. */
function emphasised(text, at) {
  const [mark] = SPANS.find(([mark]) => text.startsWith(mark, at)) ?? [];
  if (!mark || (mark[0] === "_" && /\w/.test(text[at - 1] ?? "")) || /\s/.test(text[at + mark.length] ?? " ")) return undefined;
  return mark;
}

/** Where emphasis that begins here ends; a word goes on behind no underscore that ends it. */
function ending(text, mark, at) {
  let end = text.indexOf(mark, at + mark.length + 1);
  while (end >= 0 && mark[0] === "_" && /\w/.test(text[end + mark.length] ?? "")) {
    end = end - at > SPAN ? -1 : text.indexOf(mark, end + 1);
  }
  return end;
}

function emphasis(text, at, depth) {
  const mark = emphasised(text, at);
  const end = mark ? ending(text, mark, at) : -1;
  if (end < 0 || /\s/.test(text[end - 1]) || end + mark.length - at > SPAN) return undefined;
  const [, name] = SPANS.find(([known]) => known === mark);
  return [el(name, {}, ...inline(text.slice(at + mark.length, end), depth + 1)), end + mark.length];
}

function link(text, at, depth) {
  const close = text.indexOf("](", at);
  const end = close < 0 ? -1 : text.indexOf(")", close);
  if (end < 0 || close - at > LABEL || end - close > ADDRESS) return undefined;
  const made = anchor(text.slice(close + 2, end).split(" ")[0], inline(text.slice(at + 1, close), depth + 1));
  return made && [made, end + 1];
}

/** An address in angle brackets, which are no part of it. */
function bracketed(text, at) {
  const found = address(text, at + 1);
  return found && text[found[1]] === ">" ? [found[0], found[1] + 1] : undefined;
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
