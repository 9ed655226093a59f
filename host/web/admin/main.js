// The page: the key, the sections, and the events that keep them up to date.

import { byId, notify } from "./dom.js";
import { get, key, refusal } from "./api.js";
import { Aliases } from "./aliases.js";
import { Audit } from "./audit.js";
import { Collections } from "./collections.js";
import { Keys } from "./keys.js";
import { follow } from "./live.js";
import { Adapters } from "./loras.js";
import { Models } from "./models.js";
import { Overview } from "./overview.js";
import { Plugins } from "./plugins.js";
import { Requests } from "./requests.js";

const TOPICS = ["models", "numbers", "requests", "plugins", "audit"];
const SECTIONS = ["overview", "models", "aliases", "adapters", "requests", "plugins", "collections", "keys", "audit"];

const models = new Models();
const names = () => models.names;
const overview = new Overview();
const requests = new Requests();
const plugins = new Plugins();
const audit = new Audit();
const keys = new Keys();
const views = { overview, models, aliases: new Aliases(names), adapters: new Adapters(names), requests, plugins, collections: new Collections(), keys, audit };

const heard = {
  "model.state": (data) => {
    models.state(data);
    overview.modelsChanged.soon();
  },
  "model.progress": (data) => models.progress(data),
  "model.circuit": (data) => models.circuit(data),
  "model.pull": (data) => models.pull(data),
  numbers: (data) => {
    overview.numbers(data);
    models.numbers(data);
    keys.numbers(data);
  },
  requests: (data) => requests.told(data),
  plugins: (data) => plugins.told(data),
  "audit.entry": (data) => audit.told(data),
  // What was missed is read again.
  missed: () => models.list().catch((error) => notify(error.message, "error")),
};

let following;

/** Follow the events until the key is taken back. */
function watch() {
  following?.abort();
  following = new AbortController();
  follow(TOPICS, following.signal, {
    connected,
    heard: (name, data) => heard[name]?.(data),
    broken: (reason) => {
      byId("connection").textContent = `No events: ${reason}`;
      document.body.dataset.live = "false";
    },
  });
}

async function connected() {
  byId("connection").textContent = "Live";
  document.body.dataset.live = "true";
  overview.connected();
  models.connected();
  await models.list();
}

/** Show the section that the address names. */
async function section() {
  const wanted = location.hash.slice(1);
  const name = SECTIONS.includes(wanted) ? wanted : "overview";
  for (const other of SECTIONS) byId(`view-${other}`).hidden = !key.get() || other !== name;
  for (const link of document.querySelectorAll("#sections a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const other of SECTIONS) if (!key.get() || other !== name) views[other].hidden?.();
  if (!key.get()) return;
  try {
    await views[name].shown?.();
  } catch (error) {
    if (key.get()) notify(error.message, "error");
  }
}

/** Show what there is with a key, or ask for one. */
function signedIn(yes) {
  byId("sign-in").hidden = yes;
  byId("sections").hidden = !yes;
  byId("sign-out").hidden = !yes;
}

function signOut(reason = "") {
  key.set("");
  following?.abort();
  following = undefined;
  byId("dialog").close();
  byId("connection").textContent = "";
  byId("key-fault").textContent = reason;
  signedIn(false);
  section();
  byId("key").focus();
}

async function signIn(value) {
  key.set(value);
  try {
    const { info } = await get("v1/admin/openapi.json");
    byId("version").textContent = String(info.version);
  } catch (error) {
    signOut(error.message);
    return;
  }
  byId("key").value = "";
  byId("key-fault").textContent = "";
  signedIn(true);
  watch();
  await section();
}

refusal.keyless = (refused) => signOut(refused.message);
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(byId("key").value);
});
byId("sign-out").addEventListener("click", () => signOut());
addEventListener("hashchange", section);
if (key.get()) await signIn(key.get());
else signOut();
document.body.dataset.ready = "true";
