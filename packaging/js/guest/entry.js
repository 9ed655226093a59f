// Entry of the component. What `plugin.js` throws is told to the host in one line, with its stack behind it: whoever
// runs the plugin reads both, and callers of the server read neither.

import { begin } from './globals.js';
import * as plugin from '../plugin.js';

// Frames of a stack that are told, the innermost ones.
const FRAMES = 16;

// Frames of the project: those of the entry and behind it are ours.
function framesOf(error) {
  const frames = `${error?.stack ?? ''}`.split('\n').map((frame) => frame.trim().replace('(/', '('));
  const ours = frames.findIndex((frame) => frame.includes('(build/entry.js:'));
  const own = frames.slice(0, ours < 0 ? frames.length : ours).filter(Boolean);
  return (own.at(-1) === 'at apply (native)' ? own.slice(0, -1) : own).slice(0, FRAMES);
}

// One line that says what broke and where, and its stack below.
function told(error, name) {
  const frames = framesOf(error);
  const places = frames.map((frame) => /\((.*):\d+\)$/.exec(frame)?.[1]);
  const place = places.find((found) => found !== undefined && !found.startsWith('<'));
  const where = place === undefined ? `in ${name}` : `${place}, in ${name}`;
  return [`${text(error).replaceAll(/\s*\n\s*/g, ' ')} (${where})`, ...frames].join('\n');
}

function text(error) {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : `threw ${JSON.stringify(error)}`;
  } catch {
    return 'threw what cannot be shown';
  }
}

// The function, whose exceptions become faults that tell what happened.
function guarded(call, name) {
  return function (...args) {
    begin();
    try {
      const answer = call.apply(this, args);
      if (typeof answer?.then === 'function') throw new TypeError('it answered a promise; a plugin answers at once');
      return answer;
    } catch (error) {
      // A fault that the plugin means.
      if (typeof error?.tag === 'string') throw error;
      const val = told(error, name);
      // A description has no fault to return: it traps, and what was printed tells why.
      if (name === 'describe') {
        console.error(val);
        throw error;
      }
      throw { tag: 'internal', val };
    }
  };
}

// Methods of resources that the host calls.
const METHODS = ['feed', 'close', 'mask', 'advance', 'probe', 'rollback', 'fork'];

// The functions of an interface. A resource, such as a session of a parser, is a class in it.
function guard(contract) {
  if (contract === undefined) return undefined;
  const entries = Object.entries(contract).map(([name, value]) => {
    if (typeof value !== 'function') return [name, value];
    if (!/^[A-Z]/.test(name)) return [name, guarded(value, name)];
    for (const method of METHODS) {
      const own = value.prototype[method];
      if (typeof own === 'function') value.prototype[method] = guarded(own, method);
    }
    return [name, value];
  });
  return Object.fromEntries(entries);
}

export const lifecycle = guard(plugin.lifecycle ?? { prepare() {} });
export const chatTemplate = guard(plugin.chatTemplate);
export const outputParser = guard(plugin.outputParser);
export const grammar = guard(plugin.grammar);
export const policy = guard(plugin.policy);
export const tool = guard(plugin.tool);
export const guardrail = guard(plugin.guardrail);
export const retriever = guard(plugin.retriever);
