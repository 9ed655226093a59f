// Images and recordings that go with a message, as they are.

import { el, iconButton } from "./dom.js";

/** Bytes of a file; the server may take less. */
const MOST_BYTES = 20 * 1024 * 1024;
/** Files of a message. */
const MOST_FILES = 16;
/** Formats by the names that APIs have for them. */
const FORMATS = { "audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav" };
const WIDTH = 96;

/** True for what goes with a message. Everything else is a document. */
export const isAttachment = ({ type }) => /^(image|audio)\//.test(type);

/** A file as it is kept: its name, its type and its content as a data URL. */
export async function read(file) {
  if (file.size > MOST_BYTES) throw new Error(`“${file.name}” has more than ${MOST_BYTES / 1024 / 1024} MiB`);
  const data = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`“${file.name}” cannot be read`));
    reader.readAsDataURL(file);
  });
  return { name: file.name, type: file.type, data };
}

/** A file as a part of a message. One that was not kept cannot be sent. */
export function partOf({ name, type, data }) {
  if (!data) throw new Error(`“${name}” was too large to be kept. Edit its message to send it without the file.`);
  if (type.startsWith("image/")) return { type: "image_url", image_url: { url: data } };
  return { type: "input_audio", input_audio: { data: data.slice(data.indexOf(",") + 1), format: FORMATS[type] ?? type.slice(type.indexOf("/") + 1) } };
}

/** A small picture. The page's policy loads no image, so what is in the file is drawn. */
function thumbnail({ name, type, data }) {
  if (!data || !type.startsWith("image/")) return undefined;
  const canvas = el("canvas", { width: WIDTH, height: WIDTH, role: "img", "aria-label": name });
  drawn(canvas, type, data).catch(() => canvas.remove());
  return canvas;
}

async function drawn(canvas, type, data) {
  const bytes = Uint8Array.from(atob(data.slice(data.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes], { type }));
  const scale = Math.min(1, WIDTH / Math.max(picture.width, picture.height));
  canvas.width = Math.max(1, picture.width * scale);
  canvas.height = Math.max(1, picture.height * scale);
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
}

/** Files as they are shown; with `remove`, each can be taken away. */
export function filesView(files, remove) {
  const views = files.map((file, at) => {
    const gone = file.data ? "" : " (not kept)";
    const button = remove && iconButton(`Take ${file.name} away`, "close", () => remove(at));
    return el("li", {}, thumbnail(file), el("span", {}, `${file.name}${gone}`), button);
  });
  return el("ul", { class: "files", "aria-label": "Files" }, ...views);
}

/** Files that go with the next message, shown in `place`. `hint` says what is to be known of them. */
export class Pending {
  #place;
  #hint;
  files = [];

  constructor(place, hint) {
    this.#place = place;
    this.#hint = hint;
  }

  async add(files) {
    if (this.files.length + files.length > MOST_FILES) throw new Error(`a message may have ${MOST_FILES} files`);
    this.files.push(...(await Promise.all(files.map(read))));
    this.show();
  }

  /** The files, which are no longer pending. */
  take() {
    const files = this.files;
    this.files = [];
    this.show();
    return files;
  }

  show() {
    const view = filesView(this.files, (at) => {
      this.files.splice(at, 1);
      this.show();
    });
    const hint = this.files.length > 0 && this.#hint(this.files);
    this.#place.replaceChildren(...(this.files.length ? [view] : []), ...(hint ? [el("p", { class: "hint" }, hint)] : []));
  }
}
