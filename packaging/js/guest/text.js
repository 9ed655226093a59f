// Text as UTF-8 and back, as the encoding standard has it.

const tail = (code) => 0x80 | (code & 0x3f);

export class TextEncoder {
  encoding = 'utf-8';

  encode(text = '') {
    const bytes = [];
    for (const character of `${text}`) {
      const found = character.codePointAt(0);
      // Half of a pair has no bytes of its own.
      const code = found >= 0xd800 && found < 0xe000 ? 0xfffd : found;
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), tail(code));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), tail(code >> 6), tail(code));
      else bytes.push(0xf0 | (code >> 18), tail(code >> 12), tail(code >> 6), tail(code));
    }
    return Uint8Array.from(bytes);
  }
}

// Bounds of the second byte behind some first ones; they leave out what is written too long, halves of pairs, and what is
// beyond the last character.
const SECOND = { 0xe0: [0xa0, 0xbf], 0xed: [0x80, 0x9f], 0xf0: [0x90, 0xbf], 0xf4: [0x80, 0x8f] };

// Code of the character at `at`, undefined if there is none, and where the next one begins.
function character(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, at + 1];
  const more = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  if (more === 0) return [undefined, at + 1];
  let code = first & (0x3f >> more);
  for (let index = 1; index <= more; index++) {
    const byte = bytes[at + index];
    const [low, high] = (index === 1 && SECOND[first]) || [0x80, 0xbf];
    if (!(byte >= low && byte <= high)) return [undefined, at + index];
    code = (code << 6) | (byte & 0x3f);
  }
  return [code, at + more + 1];
}

export class TextDecoder {
  encoding = 'utf-8';

  constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    if (!['utf-8', 'utf8'].includes(`${label}`.toLowerCase())) throw new RangeError(`no encoding ${label}: only utf-8`);
    Object.assign(this, { fatal, ignoreBOM });
  }

  decode(input = new Uint8Array()) {
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    let text = '';
    const marked = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    let at = marked && !this.ignoreBOM ? 3 : 0;
    while (at < bytes.length) {
      const [code, next] = character(bytes, at);
      if (code === undefined && this.fatal) throw new TypeError('the bytes are not UTF-8');
      text += code === undefined ? '\ufffd' : String.fromCodePoint(code);
      at = next;
    }
    return text;
  }
}
