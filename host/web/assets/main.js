// The page: conversations at the side, one or two columns of messages, and what the user types.

import { models, version } from "./api.js";
import { allChats, exported, forget, imported, keep, newChat } from "./chats.js";
import { Pending, isAttachment } from "./attachments.js";
import { Column } from "./columns.js";
import { addDocuments, listStores, storesOf } from "./documents.js";
import { byId, download, el, iconButton, notify } from "./dom.js";
import { inspect } from "./inspect.js";
import { showSettings, watchKey, watchSettings } from "./settings.js";

const NARROW = matchMedia("(max-width: 60rem)");
const SUGGESTIONS = ["What is mortise?", "What is 27 + 48?", "My name is Ada. What is my name?"];

let known = [];
let chat;
let columns = [];
const pending = new Pending(byId("pending"));

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
    const remove = iconButton(`Delete “${other.title}”`, "trash", () => removeChat(other.id));
    const save = iconButton(`Export “${other.title}”`, "save", () => download("mortise-conversation.json", exported([other])));
    return el("li", {}, open, save, remove);
  });
  byId("chats").replaceChildren(...rows);
}

function removeChat(id) {
  forget(id);
  if (chat.id === id) {
    chat.removed = true;
    begin();
  }
  listChats();
}

/** Show a conversation. */
function show(shown) {
  columns.forEach((column) => column.stop());
  chat = shown;
  for (const thread of chat.threads) {
    // A model that is gone cannot answer; what it has said stays.
    if (!known.some(({ id }) => id === thread.model)) thread.model = known[0]?.id ?? thread.model;
  }
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
  chat.threads.forEach((thread, at) => (byId(`model-${at}`).value = thread.model));
  byId("model-1").hidden = chat.threads.length < 2;
  byId("compare").setAttribute("aria-pressed", String(chat.threads.length > 1));
  byId("send").hidden = false;
  byId("stop").hidden = true;
}

/** A second model sees what the first has seen, and goes its own way from there. */
function compare() {
  columns.forEach((column) => column.stop());
  const [{ model, messages }] = chat.threads;
  const other = known.find(({ id }) => id !== model)?.id ?? model;
  chat.threads = chat.threads.length > 1 ? chat.threads.slice(0, 1) : [chat.threads[0], { model: other, messages: structuredClone(messages) }];
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
  byId("notes").replaceChildren();
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
    if (typed) request.messages.push({ role: "user", content: typed });
    if (!request.messages.length) throw new Error("There is no message yet.");
    inspect(request, storesOf(chat.settings).length > 0);
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
watchSettings(() => chat.settings, () => save());
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
