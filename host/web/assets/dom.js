// Elements. Texts become text nodes here and nowhere else, so nothing that a model says is ever markup.

/** An element with properties, attributes (names with a dash, `role`, `for`) and children: elements and texts. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role" || key === "for") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** A button with a label; `icon` is one of the drawings of the style sheet. */
export function button(label, onclick, { icon, ...more } = {}) {
  const mark = icon && el("span", { class: `icon ${icon}`, "aria-hidden": "true" });
  const classes = ["button", more.class].filter(Boolean).join(" ");
  return el("button", { type: "button", onclick, ...more, class: classes }, mark, el("span", {}, label));
}

/** A button that shows its drawing only, and says its label to screen readers and in a tooltip. */
export function iconButton(label, icon, onclick, more = {}) {
  const mark = el("span", { class: `icon ${icon}`, "aria-hidden": "true" });
  return el("button", { type: "button", class: "button bare", title: label, "aria-label": label, onclick, ...more }, mark);
}

/** JSON as people read it; a text that is none stays as it is. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/**
 * Say something in the corner, and to screen readers. Errors stay longer, and so does what offers an action: a `label`, and `act` for its
 * button. A note that is pointed at or has the focus stays.
 */
export function notify(text, kind = "info", { label, act } = {}) {
  const button = act && el("button", { type: "button", onclick: () => (note.remove(), act()) }, label);
  const note = el("div", { class: `note ${kind}` }, el("span", {}, text), button);
  byId("notes").append(note);
  const pause = kind === "error" || act ? 8000 : 3000;
  const end = () => (note.matches(":hover, :focus-within") ? setTimeout(end, pause) : note.remove());
  setTimeout(end, pause);
}

/** Put a text on the clipboard, and say whether that went well. */
export async function copyText(text) {
  if (await copied(text)) notify("Copied");
  else notify("The browser does not let this page copy. Select the text and copy it with the keyboard.", "error");
}

/** Over plain http from another machine a page has no clipboard: there, a selection is copied. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedSelection(text);
  }
}

function copiedSelection(text) {
  const focused = document.activeElement;
  const field = el("textarea", { class: "unseen", value: text, readOnly: true, "aria-hidden": "true" });
  document.body.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    focused?.focus({ preventScroll: true });
  }
}

/** Work that is done when its calls have paused for some milliseconds (`soon`), or at once if it is due (`now`). */
export function paused(work, pause) {
  let timer;
  const now = () => {
    if (timer === undefined) return;
    clearTimeout(timer);
    timer = undefined;
    work();
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(now, pause);
  };
  return { soon, now };
}

/** Tell screen readers only. */
export function announce(text) {
  byId("announced").textContent = text;
}

/** Milliseconds of work in a frame that nobody notices. */
const SMOOTH = 8;

/**
 * Call `work` once before the next frame, however often it is asked for. Work that takes long is done in a third of the
 * time at most, so that the page still takes what its user does.
 */
export function eachFrame(work) {
  let [asked, took] = [false, 0];
  const frame = () => {
    const begun = performance.now();
    asked = false;
    work();
    took = performance.now() - begun;
  };
  return () => {
    if (asked) return;
    asked = true;
    if (took < SMOOTH) requestAnimationFrame(frame);
    else setTimeout(() => requestAnimationFrame(frame), 2 * took);
  };
}

/** Give a text to the user as a file. */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
