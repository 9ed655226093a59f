// Files of the plugin folder: sent, examined, rolled back, removed.

import { el, notify } from "./dom.js";
import { get, part, post, remove, upload } from "./api.js";
import { action, actions, badge, bytes, confirmed, form, moment, show } from "./parts.js";

/** Bytes of a signature (ed25519). */
const SIGNATURE_BYTES = 64;

const path = (file, what = "") => `v1/admin/plugins/files/${part(file)}${what}`;

/** Files of the folder, with those that are gone and have versions; nothing where they may not be changed. */
export async function folderFiles() {
  try {
    return (await get("v1/admin/plugins/files")).data;
  } catch (error) {
    if (error.code === "plugin_upload_off") return undefined;
    throw error;
  }
}

const passed = ({ cases, signed, kinds, version }) => `${kinds.join(", ")}, version ${version}: it would serve. ${cases} golden cases passed; ${signed ? "signed by a trusted key" : "no signature was checked"}.`;

async function signatureOf(file) {
  if (!file) return {};
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.length !== SIGNATURE_BYTES) throw new Error(`a signature has ${SIGNATURE_BYTES} bytes, and this file has ${bytes.length}`);
  return { "X-Plugin-Signature": Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("") };
}

const FIELDS = [
  { name: "component", label: "Component", file: ".wasm", required: true },
  { name: "signature", label: "Its signature, if it has one", file: ".sig" },
  { name: "examine", label: "Examine it only, and write nothing", check: true },
];

/** Send what a form has for a file of the folder. */
async function sent(name, { component, signature, examine }, changed) {
  const headers = await signatureOf(signature);
  if (examine) return passed(await upload("POST", path(name, "/check"), component, headers));
  const { version, changed: serves } = await upload("PUT", path(name), component, headers);
  await changed();
  return () => notify(serves ? `${name}, version ${version}, serves.` : `${name} is there; what serves is the same.`);
}

/** Ask for a file, and put it into the folder; `changed` is called then. */
export function newFile(changed) {
  const hint = "empty: the name of the file that is sent";
  const fields = [...FIELDS.slice(0, 1), { name: "name", label: "Name in the plugin folder", hint }, ...FIELDS.slice(1)];
  form("New plugin file", fields, "Send", (values) => sent(values.name || values.component.name, values, changed));
}

/** Buttons of a file in the folder, or of one that is gone. */
export function fileActions({ file: name, present }, changed) {
  const of = (label) => ({ "aria-label": `${label} ${name}` });
  return actions(
    action("Replace", () => form(`Replace ${name}`, FIELDS, "Send", (values) => sent(name, values, changed)), of("Replace")),
    action("Versions", () => versions(name, changed), of("Versions of")),
    present && action("Remove", () => removed(name, changed), { ...of("Remove"), class: "danger" }),
  );
}

async function versions(name, changed) {
  const { data } = await get(path(name, "/versions"));
  if (!data.length) {
    show(name, el("p", {}, "There is no version before this one."));
    return;
  }
  const rows = data.map((version) => {
    const back = action("Put back", () => rolledBack(name, version.digest, changed), { "aria-label": `Put back ${version.digest}` });
    const about = [`until ${moment(version.replaced_at)}, ${bytes(version.bytes)}`, version.signed && badge("signed")].filter(Boolean);
    return el("li", {}, el("code", {}, version.digest), el("span", { class: "small" }, ...about), back);
  });
  show(`Versions of ${name}`, el("ul", { class: "versions" }, ...rows));
}

async function rolledBack(name, digest, changed) {
  const { version } = await post(path(name, "/rollback"), { digest });
  document.getElementById("dialog").close();
  await changed();
  notify(`${name}, version ${version}, serves again.`);
}

async function removed(name, changed) {
  const text = "The plugin that it replaced serves from the next request on. The file stays as a version, and can be put back under its name.";
  if (!(await confirmed(`Remove ${name}?`, text, "Remove"))) return;
  await remove(path(name));
  await changed();
}
