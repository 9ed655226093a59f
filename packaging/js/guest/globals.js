// What plugins may expect of JavaScript and the interpreter does not bring: `console`, whose lines go to the log of the
// host, `TextEncoder` and `TextDecoder`. It is imported before `plugin.js`.

import { log } from 'mortise:plugin/host@0.3.0';
import { TextDecoder, TextEncoder } from './text.js';

// Lines that were printed while the component was built, when there is no host; told with the first call.
let held = [];

// Values as text: what has no JSON, such as a function, as JavaScript names it.
function shown(value) {
  if (typeof value === 'string') return value;
  if (value instanceof Error) return `${value.name}: ${value.message}\n${value.stack ?? ''}`.trimEnd();
  try {
    const plain = (_, inner) => (typeof inner === 'bigint' ? `${inner}n` : inner);
    return JSON.stringify(value, plain) ?? String(value);
  } catch {
    return String(value);
  }
}

function write(level, values) {
  for (const line of values.map(shown).join(' ').split('\n')) {
    if (held === undefined) log(level, line, []);
    else held.push([level, line]);
  }
}

// Says that a host is there.
export function begin() {
  if (held === undefined) return;
  const lines = held;
  held = undefined;
  for (const [level, line] of lines) log(level, line, []);
}

const levels = { trace: 'trace', debug: 'debug', log: 'info', info: 'info', warn: 'warn', error: 'error' };
const methods = Object.entries(levels).map(([name, level]) => [name, (...values) => write(level, values)]);
globalThis.console = Object.fromEntries(methods);

Object.assign(globalThis, { TextEncoder, TextDecoder });
