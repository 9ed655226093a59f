#!/usr/bin/env node
// `mortise-plugin build` makes a component of `plugin.js`. What it needs of a release of mortise, the WIT package and
// the entry of components, is in this package.

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const HERE = path.dirname(fileURLToPath(import.meta.url));

// Exports of `plugin.js` by the kinds of plugins.
const KINDS = {
  chatTemplate: 'chat-template',
  outputParser: 'output-parser',
  grammar: 'grammar',
  policy: 'policy',
  tool: 'tool',
  guardrail: 'guardrail',
  retriever: 'retriever',
};

// Section that holds the JSON Schema of the settings.
const SCHEMA = 'mortise:settings-schema';

const HELP = `mortise-plugin build [--kind KIND] [--folder FOLDER] [--output FILE]

makes a component of \`plugin.js\`, with the schema in \`settings.schema.json\`

  --kind KIND      ${Object.values(KINDS).join(', ')}
                   (default: as \`plugin.js\` says by its export)
  --folder FOLDER  the project (default: .)
  --output FILE    where it is written (default: FOLDER.wasm in the project)
`;

class Failure extends Error {}

function fail(message) {
  throw new Failure(message);
}

function read(file) {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch (error) {
    return fail(`cannot read \`${file}\`: ${error.code ?? error.message}`);
  }
}

// Kind that the exports of `plugin.js` say.
function kindOf(folder) {
  const file = path.join(folder, 'plugin.js');
  const source = read(file);
  const names = new Set();
  for (const [, name] of source.matchAll(/^export\s+(?:const|let|var|class)\s+(\w+)/gm)) names.add(name);
  for (const [, list] of source.matchAll(/^export\s*\{([^}]*)\}/gm)) {
    for (const name of list.split(',')) names.add(name.trim().split(/\s+as\s+/).at(-1));
  }
  const kinds = Object.keys(KINDS).filter((name) => names.has(name));
  if (kinds.length !== 1) {
    fail(`\`${file}\` has ${kinds.length} of the exports ${Object.keys(KINDS).join(', ')}; have one, or say --kind`);
  }
  return KINDS[kinds[0]];
}

// Number as WebAssembly writes it.
function number(value) {
  const bytes = [];
  do {
    bytes.push((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>>= 7;
  } while (value > 0);
  return Buffer.from(bytes);
}

function section(name, content) {
  const title = Buffer.from(name);
  const body = Buffer.concat([number(title.length), title, content]);
  return Buffer.concat([Buffer.from([0]), number(body.length), body]);
}

// Section with the schema of the settings, if the project has one.
function schemaOf(folder) {
  const file = path.join(folder, 'settings.schema.json');
  if (!fs.existsSync(file)) return Buffer.alloc(0);
  const text = read(file);
  try {
    JSON.parse(text);
  } catch (error) {
    fail(`\`${file}\` is not JSON: ${error.message}`);
  }
  return section(SCHEMA, Buffer.from(text));
}

// The module that the component begins with. Modules are found within the project only, so it is laid there.
function layEntry(folder) {
  const build = path.join(folder, 'build');
  fs.mkdirSync(build, { recursive: true });
  for (const name of ['entry.js', 'globals.js', 'text.js']) {
    fs.copyFileSync(path.join(HERE, 'guest', name), path.join(build, name));
  }
  return path.join(build, 'entry.js');
}

async function build({ kind, folder, output }) {
  const world = kind ?? kindOf(folder);
  if (!Object.values(KINDS).includes(world)) fail(`there is no kind \`${world}\``);
  const schema = schemaOf(folder);
  const entry = layEntry(folder);
  const file = output ?? path.join(folder, `${path.basename(path.resolve(folder))}.wasm`);
  const { componentize } = await import('componentize-qjs');
  let made;
  try {
    made = await componentize({
      witPath: path.join(HERE, 'wit'),
      jsSource: read(entry),
      jsPath: entry,
      moduleRoot: folder,
      world: `${world}-plugin`,
      sync: true,
    });
  } catch (error) {
    fail(error.message);
  }
  fs.writeFileSync(file, Buffer.concat([made.component, schema]));
  console.log(`built \`${file}\`, kind ${world}`);
}

async function main() {
  const options = { kind: { type: 'string' }, folder: { type: 'string', default: '.' }, output: { type: 'string' } };
  let given;
  try {
    const help = { type: 'boolean', short: 'h' };
    given = parseArgs({ options: { ...options, help }, allowPositionals: true });
  } catch (error) {
    fail(error.message);
  }
  if (given.values.help) return console.log(HELP);
  const [command, ...more] = given.positionals;
  if (command !== 'build' || more.length > 0) fail(`write \`mortise-plugin build\`; --help tells more`);
  return build(given.values);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  console.error(`mortise-plugin: ${error.message}`);
  process.exitCode = 1;
}
