// The page: conversations at the side, one or two columns of messages, and what the user types.

import { models, version } from "./api.js";
import { allChats, exported, forget, imported, keep, newChat, put } from "./chats.js";
import { Pending, isAttachment } from "./attachments.js";
import { Column } from "./columns.js";
import { addDocuments, listStores, storesOf } from "./documents.js";
import { byId, download, el, iconButton, notify, paused } from "./dom.js";
import { inspect } from "./inspect.js";
import { showSettings, watchKey, watchSettings } from "./settings.js";
import { searchIn } from "./turns.js";

const NARROW = matchMedia("(max-width: 60rem)");
const SUGGESTIONS = ["What is mortise?", "What is 27 + 48?", "My name is Ada. What is my name?"];

/** Milliseconds without a keystroke after which settings are kept. */
const PAUSE = 400;

let known = [];
let chat;
let columns = [];
const pending = new Pending(byId("pending"), untaken);
const settings = paused(() => save(), PAUSE);

/** What the models do not take of the files that go with the next message, as far as that is known. */
function untaken(files) {
  const kinds = [...new Set(files.map(({ type }) => type.split("/")[0]))];
  const told = chat.threads.flatMap(({ model }) => {
    const taken = known.find(({ id }) => id === model)?.modalities;
    const not = taken && kinds.filter((kind) => !taken.includes(kind));
    return not?.length ? [`${model} takes ${not.map((kind) => (kind === "image" ? "no images" : "no recordings")).join(" and ")}.`] : [];
  });
  return [...new Set(told)].join(" ");
}

/** What the columns of a conversation ask for. It may no longer be the one that is shown when an answer ends. */
const hooksOf = (of) => ({
  settings: () => of.settings,
  changed: () => {
    const running = columns.some((column) => column.running);
    byId("send").hidden = running;
    byId("stop").hidden = !running;
    save(of);
  },
  failed: (message) => notify(message, "error"),
  inspect,
  welcome: () =>
    el(
      "div",
      { class: "welcome" },
      el("h1", {}, "What shall the model answer?"),
      el("div", { class: "suggestions" }, ...SUGGESTIONS.map((text) => el("button", { type: "button", class: "button", onclick: () => send(text) }, text))),
    ),
});

/** Keep a conversation, once there is something to keep. */
function save(of = chat) {
  const [first] = of.threads[0].messages;
  if (!first || of.removed) return;
  of.title ||= (first.content || first.files[0]?.name || "").slice(0, 60);
  if (!keep(of)) notify("This browser has no room for the conversation: export it to keep it.", "error");
  listChats();
}

function listChats() {
  const rows = allChats().map((other) => {
    const open = el("button", { type: "button", class: "chat", onclick: () => show(other) }, other.title || "Untitled");
    if (other.id === chat?.id) open.setAttribute("aria-current", "true");
    const remove = iconButton(`Delete “${other.title}”`, "trash", () => removeChat(other));
    const save = iconButton(`Export “${other.title}”`, "save", () => download("mortise-conversation.json", exported([other])));
    return el("li", {}, open, save, remove);
  });
  byId("chats").replaceChildren(...rows);
}

/** Delete a conversation, which can be taken back for some seconds. */
function removeChat(listed) {
  settings.now();
  const shown = chat.id === listed.id;
  const gone = shown ? chat : listed;
  forget(gone.id);
  gone.removed = true;
  if (shown) begin();
  listChats();
  const back = () => {
    gone.removed = false;
    put(gone);
    // What was begun meanwhile stays where it is.
    if (shown && !chat.threads[0].messages.length) show(gone);
    else listChats();
  };
  notify(`“${gone.title || "Untitled"}” was deleted.`, "info", { label: "Undo", act: back });
}

/** A model that is gone cannot answer; what it has said stays. */
function settle() {
  for (const thread of chat.threads) {
    if (!known.some(({ id }) => id === thread.model)) thread.model = known[0]?.id ?? thread.model;
  }
}

/** Show a conversation. */
function show(shown) {
  settings.now();
  columns.forEach((column) => column.stop());
  chat = shown;
  settle();
  showSettings(chat.settings);
  drawColumns();
  listChats();
  fold("sidebar", true);
}

/** Begin a conversation with the settings of the one before. */
function begin() {
  show(newChat(chat?.threads[0].model ?? known[0]?.id ?? "", chat?.settings));
  byId("prompt").focus();
}

function drawColumns() {
  const labels = chat.threads.length > 1 ? ["First answers", "Second answers"] : ["Answers"];
  const hooks = hooksOf(chat);
  columns = chat.threads.map((thread, at) => new Column(thread, hooks, labels[at]));
  byId("columns").replaceChildren(...columns.map((column) => column.element));
  columns.forEach((column) => (column.element.scrollTop = column.element.scrollHeight));
  chooseModels();
  byId("model-1").hidden = chat.threads.length < 2;
  byId("compare").setAttribute("aria-pressed", String(chat.threads.length > 1));
  byId("send").hidden = false;
  byId("stop").hidden = true;
}

/** Show the models of the columns in the lists. */
function chooseModels() {
  chat.threads.forEach((thread, at) => (byId(`model-${at}`).value = thread.model));
  pending.show();
}

/** A second model sees what the first has seen, and goes its own way from there. */
function beside({ model, messages }) {
  const other = known.find(({ id }) => id !== model)?.id ?? model;
  return { model: other, messages: structuredClone(messages) };
}

/** True if a column has something that another one has not seen. */
const hasOwn = ({ messages }, other) => messages.some((message, at) => JSON.stringify(message) !== JSON.stringify(other.messages[at]));

/** Open a second column, or close it. One that is closed with answers of its own is kept, and comes back as it was. */
function compare() {
  columns.forEach((column) => column.stop());
  const { threads, aside } = chat;
  const [first, second] = threads;
  chat.threads = second ? [first] : [first, aside ?? beside(first)];
  chat.aside = second && hasOwn(second, first) ? second : undefined;
  settle();
  drawColumns();
  save();
  if (chat.aside) notify("The second column is kept: the same button brings it back.");
  if (aside && !second) notify("The second column is as it was left.", "info", { label: "Begin it anew", act: () => beginBeside(chat) });
}

/** The second column begins again with what the first has seen. */
function beginBeside(of) {
  if (chat !== of || of.threads.length < 2) return;
  columns.forEach((column) => column.stop());
  const [first] = of.threads;
  of.threads = [first, beside(first)];
  drawColumns();
  save();
}

function send(text) {
  if ((!text.trim() && !pending.files.length) || columns.some((column) => column.running)) return;
  if (!chat.threads.every(({ model }) => model)) {
    notify("There is no model to ask. Does the server want an API key? It is at the end of the settings.", "error");
    return;
  }
  try {
    columns.forEach((column) => column.request());
  } catch (error) {
    notify(error.message, "error");
    return;
  }
  // What was wrong before is mended.
  byId("notes").querySelectorAll(".error").forEach((note) => note.remove());
  const files = pending.take();
  columns.forEach((column) => column.send(text, files));
  byId("prompt").value = "";
  fit();
}

/** Take files from the user: images and recordings go with the next message, all others into a collection. */
async function take(files) {
  const all = [...files];
  const documents = all.filter((file) => !isAttachment(file));
  try {
    await pending.add(all.filter(isAttachment));
  } catch (error) {
    notify(`Nothing was attached: ${error.message}.`, "error");
  }
  if (!documents.length) return;
  fold("settings", false);
  byId("group-stores").open = true;
  await addDocuments(documents, chat.title || "Playground");
}

/** Give the field the height of its text. */
function fit() {
  const field = byId("prompt");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

/** What would be sent now, the text that is being typed included. */
function look() {
  const typed = byId("prompt").value.trim();
  try {
    const request = columns[0].request();
    if (pending.files.length) throw new Error("Send the files first: then the eye below the answer shows what the model saw.");
    const messages = [...columns[0].thread.messages];
    if (typed) {
      request.messages.push({ role: "user", content: typed });
      messages.push({ role: "user", content: typed, files: [] });
    }
    if (!request.messages.length) throw new Error("There is no message yet.");
    inspect(request, { search: searchIn(storesOf(chat.settings), messages) });
  } catch (error) {
    notify(error.message, "error");
  }
}

async function listModels() {
  try {
    known = await models();
  } catch (error) {
    known = [];
    notify(error.status === 401 ? "The server asks for an API key: it is at the end of the settings." : error.message, "error");
    if (error.status === 401) fold("settings", false);
  }
  offerModels();
}

/** Read the models again: one may have been loaded elsewhere. */
async function refreshModels() {
  const now = await models().catch(() => known);
  if (JSON.stringify(now) === JSON.stringify(known)) return;
  known = now;
  offerModels();
  settle();
  chooseModels();
}

function offerModels() {
  for (const at of [0, 1]) {
    const options = known.map(({ id, loaded }) => el("option", { value: id }, loaded ? id : `${id} (not loaded)`));
    byId(`model-${at}`).replaceChildren(...options);
  }
}

/** Fold or unfold what stands beside the messages. */
function fold(id, folded) {
  if (!NARROW.matches && id === "sidebar") folded = false;
  byId(id).classList.toggle("open", !folded);
  byId(`toggle-${id}`).setAttribute("aria-expanded", String(!folded));
  const over = NARROW.matches && ["sidebar", "settings"].some((side) => byId(side).classList.contains("open"));
  byId("scrim").hidden = !over;
}

const toggle = (id) => fold(id, byId(id).classList.contains("open"));

function watchKeys() {
  const field = byId("prompt");
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send(field.value);
    } else if (event.key === "ArrowUp" && !field.value) {
      event.preventDefault();
      columns[0].editLast();
    }
  });
  field.addEventListener("input", fit);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || byId("inspect").open) return;
    columns.forEach((column) => column.stop());
    if (NARROW.matches) ["sidebar", "settings"].forEach((side) => fold(side, true));
  });
}

function watchButtons() {
  const clicks = {
    new: begin,
    stop: () => columns.forEach((column) => column.stop()),
    compare,
    look,
    import: () => byId("file").click(),
    attach: () => byId("attachments").click(),
    "add-documents": () => byId("documents").click(),
    export: () => download("mortise-conversations.json", exported(allChats())),
    "toggle-sidebar": () => toggle("sidebar"),
    "toggle-settings": () => toggle("settings"),
    "close-settings": () => fold("settings", true),
    scrim: () => ["sidebar", "settings"].forEach((side) => fold(side, true)),
  };
  for (const [id, click] of Object.entries(clicks)) byId(id).addEventListener("click", click);
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send(byId("prompt").value);
  });
  for (const at of [0, 1]) {
    byId(`model-${at}`).addEventListener("change", ({ target }) => {
      chat.threads[at].model = target.value;
      pending.show();
      save();
    });
  }
  for (const id of ["attachments", "documents"]) {
    byId(id).addEventListener("change", async ({ target }) => {
      const files = [...target.files];
      target.value = "";
      await take(files);
    });
  }
  const dropped = (event, files) => {
    if (!files?.length) return;
    event.preventDefault();
    take(files);
  };
  byId("prompt").addEventListener("paste", (event) => dropped(event, event.clipboardData?.files));
  byId("columns").addEventListener("dragover", (event) => event.preventDefault());
  byId("columns").addEventListener("drop", (event) => dropped(event, event.dataTransfer?.files));
  byId("group-stores").addEventListener("toggle", () => byId("group-stores").open && listStores());
  byId("file").addEventListener("change", async ({ target }) => {
    try {
      const chats = await imported(target.files[0]);
      chats.forEach(keep);
      show(chats[0]);
      notify(chats.length === 1 ? "One conversation was imported." : `${chats.length} conversations were imported.`);
    } catch (error) {
      notify(`Nothing was imported: ${error.message}.`, "error");
    }
    target.value = "";
  });
}

watchKeys();
watchButtons();
watchSettings(() => chat.settings, settings.soon);
addEventListener("pagehide", settings.now);
addEventListener("focus", refreshModels);
watchKey(async () => {
  await listModels();
  show(chat);
});
NARROW.addEventListener("change", () => fold("sidebar", NARROW.matches));
fold("settings", NARROW.matches);
fold("sidebar", true);
await listModels();
begin();
document.body.dataset.ready = "true";
byId("version").textContent = await version().catch(() => "");
