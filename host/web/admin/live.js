// Streams of events that are opened again when they break off.

import { events, key } from "./api.js";

/** Pauses before a stream is opened again, in milliseconds. */
const PAUSES = [500, 1000, 2000, 5000, 10_000];

/**
 * Follow topics until `signal` is aborted. `heard` gets the name and the data of each event, `connected` is called before the first one
 * of a stream, and `broken` with the reason when it has ended.
 */
export async function follow(topics, signal, { heard, connected = () => {}, broken = () => {} }) {
  for (let tries = 0; !signal.aborted; tries++) {
    let reason = "the stream ended";
    try {
      for await (const { name, data } of events(topics, signal)) {
        if (signal.aborted) return;
        if (tries >= 0) await connected();
        tries = -1;
        heard(name, data);
      }
    } catch (error) {
      if (signal.aborted || !key.get()) return;
      reason = error.message;
    }
    if (signal.aborted) return;
    broken(reason);
    await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(Math.max(tries, 0), PAUSES.length - 1)]));
  }
}

/**
 * What a section shows: read when the section is shown and after changes, and told by the events of a topic for as long as it is shown.
 * What was asked for before an event came is older than the event, and is left out. `beside` has what is done with events of further topics.
 */
export class Live {
  #topic;
  #read;
  #show;
  #beside;
  #turn = 0;
  #following;

  constructor(topic, read, show, beside = {}) {
    [this.#topic, this.#read, this.#show, this.#beside] = [topic, read, show, beside];
  }

  async list() {
    const turn = ++this.#turn;
    const told = await this.#read();
    if (turn === this.#turn) this.#show(told);
  }

  async shown() {
    this.hidden();
    this.#following = new AbortController();
    const heard = (name, data) => {
      if (name !== this.#topic) return void this.#beside[name]?.(data);
      this.#turn += 1;
      this.#show(data);
    };
    follow([this.#topic, ...Object.keys(this.#beside)], this.#following.signal, { heard });
    await this.list();
  }

  hidden() {
    this.#following?.abort();
    this.#following = undefined;
  }
}
