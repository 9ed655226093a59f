// An output parser for models that write a tool call as [[name {"argument": 1}]]. The markers are in the
// settings: {"open": "[[", "close": "]]"}. A call of a tool that was not declared, or one whose arguments
// are no JSON object, stays content, exactly as it was generated.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

const markers = { open: '[[', close: ']]' };

export const lifecycle = {
  prepare() {
    Object.assign(markers, JSON.parse(settings()));
  },
};

/** @typedef {import('mortise:plugin/output-parser@0.3.0').Event} Event */

// One answer being parsed.
class Session {
  constructor(names, parallel) {
    this.names = names;
    this.parallel = parallel;
    // Text that may yet turn out to be a call, and how much of it was searched for the closing mark.
    this.held = '';
    this.searched = 0;
    this.calls = 0;
  }

  feed(text, tokens) {
    this.held += text;
    return [...this.parse(false)];
  }

  close(reason) {
    return [...this.parse(true)];
  }

  // Hand out all that is certain. How the text was cut into pieces changes nothing: what happens next
  // depends on the held text alone.
  /** @returns {Generator<Event>} */
  *parse(last) {
    for (;;) {
      const start = this.held.indexOf(markers.open);
      if (start < 0) {
        const keep = last ? 0 : beginningOf(this.held, markers.open);
        yield* this.release(this.held.length - keep);
        return;
      }
      yield* this.release(start);
      const end = this.held.indexOf(markers.close, Math.max(markers.open.length, this.searched));
      if (end < 0) {
        // The mark may be cut in two.
        this.searched = Math.max(0, this.held.length - markers.close.length + 1);
        if (last) yield* this.release(this.held.length);
        return;
      }
      const size = end + markers.close.length;
      const call = this.call(this.held.slice(markers.open.length, end));
      if (call === undefined) {
        yield* this.release(size);
      } else {
        this.drop(size);
        yield* call;
      }
    }
  }

  // `name {…}` as the events of a call, if it is one of a declared tool.
  /** @returns {Event[] | undefined} */
  call(text) {
    const space = text.indexOf(' ');
    const [name, delta] = [text.slice(0, space), text.slice(space + 1).trim()];
    if (space < 0 || !this.names.includes(name) || !isObject(delta)) return undefined;
    if (this.calls > 0 && !this.parallel) return [];
    const index = this.calls++;
    return [
      { tag: 'call-begin', val: { index, name } },
      { tag: 'call-arguments', val: { index, delta } },
      { tag: 'call-end', val: index },
    ];
  }

  // Hand out the beginning of what is held as content.
  /** @returns {Generator<Event>} */
  *release(count) {
    if (count === 0) return;
    yield { tag: 'content', val: this.held.slice(0, count) };
    this.drop(count);
  }

  drop(count) {
    this.held = this.held.slice(count);
    this.searched = 0;
  }
}

function isObject(text) {
  try {
    JSON.parse(text);
    return text.startsWith('{');
  } catch {
    return false;
  }
}

// Length of the longest end of `text` that begins `marker`.
function beginningOf(text, marker) {
  let length = Math.min(text.length, marker.length - 1);
  while (length > 0 && !text.endsWith(marker.slice(0, length))) length--;
  return length;
}

/** @type {import('mortise:plugin/output-parser@0.3.0').OutputParser} */
export const outputParser = {
  Session,

  describe() {
    return { keepSpecialTokens: false };
  },

  constraint(setup, wanted) {
    // A parser whose calls may be forced returns the grammar of its format here.
    return wanted;
  },

  open(setup) {
    const names = JSON.parse(setup.tools).map((tool) => tool.function.name);
    // Where nothing can be a call the host passes the text on without asking us.
    if (names.length === 0 || setup.toolChoice.tag === 'none') return undefined;
    return new Session(names, setup.parallel);
  },
};
