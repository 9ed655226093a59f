// The panel of settings: fields of the form, as they are typed, to those of the conversation and back.

import { key } from "./api.js";
import { SETTINGS } from "./chats.js";
import { mark as markStores } from "./documents.js";
import { byId, el } from "./dom.js";
import { fieldsOf } from "./turns.js";

/** Marks of what is set, beside the titles of folded groups. */
const GROUPS = {
  "group-sampling": ["top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"],
  "group-tools": ["tools", "server_tools"],
  "group-schema": ["schema"],
  "group-stores": ["stores"],
};

const fieldOf = (name) => byId(`set-${name}`);

/** Read the panel into `settings()` whenever it changes, and call `changed`. */
export function watchSettings(settings, changed) {
  for (const name of SETTINGS) {
    fieldOf(name).addEventListener("input", () => {
      settings()[name] = fieldOf(name).value;
      mark(settings());
      changed();
    });
  }
  fieldOf("logprobs").addEventListener("change", () => {
    settings().logprobs = fieldOf("logprobs").checked;
    changed();
  });
  byId("set-key").value = key.get();
}

/** Call `changed` when the key of the caller is another one. */
export function watchKey(changed) {
  byId("set-key").addEventListener("change", () => {
    key.set(byId("set-key").value.trim());
    changed();
  });
}

/** Show settings in the panel. */
export function showSettings(settings) {
  for (const name of SETTINGS) fieldOf(name).value = settings[name];
  fieldOf("logprobs").checked = settings.logprobs;
  markStores();
  mark(settings);
}

/** Say at each field what is wrong with it. */
function mark(settings) {
  const { faults } = fieldsOf(settings);
  for (const name of SETTINGS) {
    const field = fieldOf(name);
    const id = `fault-${name}`;
    byId(id)?.remove();
    field.toggleAttribute("aria-invalid", name in faults);
    field.removeAttribute("aria-describedby");
    if (!(name in faults)) continue;
    field.setAttribute("aria-describedby", id);
    field.after(el("p", { id, class: "fault" }, faults[name]));
  }
  for (const [id, names] of Object.entries(GROUPS)) {
    byId(id).classList.toggle("set", names.some((name) => settings[name].trim()));
  }
}
