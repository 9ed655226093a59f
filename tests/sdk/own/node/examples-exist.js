// Set up before OpenAI's own tests of the Node client, as examples_exist.py is for those of the Python client. They are
// written against a mock that knows every id of the specification's examples. Before a request that names such an id, the
// thing is made on the server under test, and its id put in the place of the example's. Requests for responses that leave
// out what OpenAI's service requires, the model and the input, which the mock does not look for, get them.

const fs = require('node:fs');
const path = require('node:path');

const MODEL = 'mortise-demo';
const MESSAGES = [{ role: 'user', content: 'Hello' }];
const base = process.env.TEST_API_BASE_URL;
const { MORTISE_ADMIN_URL: admin, MORTISE_ADMIN_KEY: key, MORTISE_UPLOAD: upload } = process.env;
const fetched = globalThis.fetch;

async function ask(url, method, body, headers = {}) {
  const json = body !== undefined && !(body instanceof FormData);
  const answer = await fetched(url, {
    method,
    headers: json ? { 'content-type': 'application/json', ...headers } : headers,
    body: json ? JSON.stringify(body) : body,
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${url}: ${JSON.stringify(told)}`);
  return told;
}

const made = async (route, body) => (await ask(base + route, 'POST', body)).id;

function uploaded(name, text, purpose) {
  const form = new FormData();
  form.append('purpose', purpose);
  form.append('file', new Blob([text]), name);
  return made('/files', form);
}

const completion = () => made('/chat/completions', { model: MODEL, messages: MESSAGES, store: true, max_tokens: 2 });
// Made in the background, so that it can be streamed and cancelled.
const response = () => made('/responses', { model: MODEL, input: 'Hello', background: true, max_output_tokens: 64 });
// One that can be continued.
const answered = () => made('/responses', { model: MODEL, input: 'Hello', max_output_tokens: 16 });
const conversation = () => made('/conversations', { items: MESSAGES });
const file = () => uploaded('one.md', 'One line.', 'user_data');
const store = () => made('/vector_stores', { name: 'examples' });

function inputFile(lines = 1, more = {}) {
  const line = { method: 'POST', url: '/v1/responses', body: { model: MODEL, input: 'Hello', ...more } };
  const text = Array.from({ length: lines }, (_, number) => JSON.stringify({ custom_id: String(number), ...line }));
  return uploaded('in.jsonl', text.join('\n'), 'batch');
}

async function batch() {
  return batchOf(await inputFile());
}

/** A batch that has not ended when it is cancelled. */
async function longBatch() {
  return batchOf(await inputFile(200, { max_output_tokens: 1000 }));
}

function batchOf(input) {
  return made('/batches', { input_file_id: input, endpoint: '/v1/responses', completion_window: '24h' });
}

/** A model that may be deleted. */
async function model() {
  const name = `uploaded-${process.pid}-${process.hrtime.bigint()}`;
  const form = new FormData();
  form.append('model_id', name);
  for (const part of fs.readdirSync(upload)) {
    form.append('file', new Blob([fs.readFileSync(path.join(upload, part))]), part);
  }
  await ask(`${admin}/v1/admin/models/ingest`, 'POST', form, { authorization: `Bearer ${key}` });
  return name;
}

// Examples in paths, and what stands for them.
const PATHS = [
  [/(\/chat\/completions\/)completion_id/, completion],
  [/(\/responses\/)(?:resp_677efb5139a88190b512bc3fef8e535d|response_id)/, response],
  [/(\/conversations\/)conv_123/, conversation],
  [/(\/v1\/files\/)file_id/, file],
  [/(\/batches\/)batch_id(?=\/cancel)/, longBatch],
  [/(\/batches\/)batch_id/, batch],
  [/(\/vector_stores\/)(?:vs_abc123|vector_store_id)/, store],
];
// Members of bodies that name what exists.
const MEMBERS = { file_id: file, input_file_id: () => inputFile() };
// What there is at least one of in a list.
const LISTS = { '/chat/completions': completion, '/files': file, '/batches': batch, '/vector_stores': store };
const ITEM = /\/conversations\/([^/]+)\/items\/msg_abc/;
const ATTACHED = /(\/vector_stores\/([^/]+)\/files\/)(?:file-abc123|file_id)/;
const TO_DELETE = /(\/models\/)ft(?::|%3A)gpt-4o-mini(?::|%3A)acemeco(?::|%3A)suffix(?::|%3A)abc123/;
// Routes that need a model and an input.
const GENERATING = ['/responses', '/responses/compact', '/responses/input_tokens'];

async function existing(url, method) {
  for (const [example, make] of PATHS) {
    const found = example.exec(url);
    if (found) url = url.replace(found[0], found[1] + (await make()));
  }
  let found = ITEM.exec(url);
  if (found) {
    const items = await ask(`${base}/conversations/${found[1]}/items`, 'GET');
    url = url.replace('msg_abc', items.data[0].id);
  }
  found = ATTACHED.exec(url);
  if (found) {
    const attached = await made(`/vector_stores/${found[2]}/files`, { file_id: await file() });
    url = url.replace(found[0], found[1] + attached);
  }
  found = TO_DELETE.exec(url);
  if (found && method === 'DELETE' && admin) url = url.replace(found[0], found[1] + (await model()));
  const list = new URL(url).pathname.replace('/v1', '');
  if (LISTS[list] && /[?&]after=after(?:&|$)/.test(url)) {
    await LISTS[list]();
    const first = (await ask(base + list, 'GET')).data[0].id;
    url = url.replace('after=after', `after=${first}`);
  }
  return url;
}

/** The body of a request, with what the service requires and with what exists. */
async function complete(route, body) {
  if (GENERATING.includes(route)) {
    const stands = 'prompt' in body ? {} : { input: MESSAGES };
    const filled = { model: MODEL, ...stands, ...body };
    if (filled.previous_response_id === 'resp_123' && !('conversation' in filled)) {
      filled.previous_response_id = await answered();
    }
    body = filled;
  }
  for (const [name, make] of Object.entries(MEMBERS)) {
    if (body[name] === name) body = { ...body, [name]: await make() };
  }
  return body;
}

globalThis.fetch = async (input, options = {}) => {
  const method = (options.method ?? 'GET').toUpperCase();
  const url = await existing(String(input), method);
  const route = new URL(url).pathname.replace(/^\/v1/, '');
  const json = method === 'POST' && (typeof options.body === 'string' || options.body === undefined);
  if (json && (options.body !== undefined || GENERATING.includes(route))) {
    const body = await complete(route, JSON.parse(options.body ?? '{}'));
    const headers = new Headers(options.headers);
    headers.set('content-type', 'application/json');
    headers.delete('content-length');
    options = { ...options, headers, body: JSON.stringify(body) };
  }
  return fetched(url, options);
};
