// What the package `mortise-plugin` brings beside the language itself: no browser and no Node.js is there.

interface Console {
  trace(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}
/** Lines for the log of the server, and for whoever runs the plugin. */
declare var console: Console;

declare class TextEncoder {
  readonly encoding: 'utf-8';
  encode(text?: string): Uint8Array;
}

declare class TextDecoder {
  constructor(label?: 'utf-8' | 'utf8', options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: 'utf-8';
  decode(input?: ArrayBuffer | ArrayBufferView): string;
}
