// Collections in which answers search: chosen in the settings, and filled with documents.

import { attach, fileState, makeStore, sendFile, vectorStores } from "./api.js";
import { byId, el, notify } from "./dom.js";

/** Collections that a request may name. */
const MOST = 8;
/** Pause between two looks at a document that is being ingested, in milliseconds. */
const PAUSE = 500;

const idsOf = (typed) => typed.split(",").map((id) => id.trim()).filter(Boolean);

export const storesOf = (settings) => idsOf(settings.stores);

const field = () => byId("set-stores");

function choose(ids) {
  field().value = ids.join(",");
  field().dispatchEvent(new Event("input"));
  mark();
}

/** Tick the boxes of the collections that are chosen. */
export function mark() {
  const chosen = idsOf(field().value);
  for (const box of byId("stores").querySelectorAll("input")) box.checked = chosen.includes(box.value);
}

function toggled({ target }) {
  const others = idsOf(field().value).filter((id) => id !== target.value);
  const ids = target.checked ? [...others, target.value] : others;
  if (ids.length > MOST) notify(`An answer may search in ${MOST} collections.`, "error");
  choose(ids.slice(0, MOST));
}

/** Read the collections of the caller. */
export async function listStores() {
  const place = byId("stores");
  try {
    const stores = await vectorStores();
    const boxes = stores.map(({ id, name, files }) =>
      el("label", { class: "check" }, el("input", { type: "checkbox", value: id, onchange: toggled }), `${name || id}, ${files === 1 ? "1 file" : `${files} files`}`),
    );
    place.replaceChildren(...(boxes.length ? boxes : [el("p", { class: "hint" }, "There is no collection yet.")]));
    // One that is gone cannot be searched.
    const known = idsOf(field().value).filter((id) => stores.some((store) => store.id === id));
    if (known.length !== idsOf(field().value).length) choose(known);
    mark();
  } catch (error) {
    place.replaceChildren(el("p", { class: "fault" }, error.message));
  }
}

/** Add documents to the collection that is chosen first, or to a new one of this name. */
export async function addDocuments(files, name) {
  const rows = files.map((file) => {
    const state = el("span", { class: "place" }, "sending");
    byId("documents-state").append(el("li", {}, el("span", {}, file.name), state));
    return { file, state };
  });
  let store = idsOf(field().value)[0];
  try {
    store ??= (await makeStore({ name })).id;
  } catch (error) {
    rows.forEach(({ state }) => (state.textContent = error.message));
    notify(error.message, "error");
    return;
  }
  await Promise.all(rows.map((row) => added(store, row)));
  await listStores();
  if (!idsOf(field().value).includes(store)) choose([...idsOf(field().value), store]);
}

async function added(store, { file, state }) {
  try {
    const { id } = await sendFile(file);
    let now = await attach(store, id);
    while (now.status === "in_progress") {
      const { chunks_done: done, chunks_total: all } = now.progress;
      state.textContent = all ? `${done} of ${all} chunks` : "being read";
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      now = await fileState(store, id);
    }
    state.textContent = now.status === "completed" ? `${now.progress.chunks_done} chunks` : (now.last_error?.message ?? now.status);
  } catch (error) {
    state.textContent = error.message;
    notify(`${file.name}: ${error.message}`, "error");
  }
}
