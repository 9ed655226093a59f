// What the model saw: the prompt that the chat template made of a conversation, token by token.

import { rendered, renderedResponse, tokenized } from "./api.js";
import { byId, el } from "./dom.js";
import { renderOf } from "./responses.js";

/** Kinds of control tokens that are looked up. */
const CANDIDATES = 48;

/** Prompt and tokens of a request, as the route renders it that answers it. */
async function both(request, search) {
  if (!search) return Promise.all([rendered(request), tokenized(request)]);
  const prompt = await renderedResponse(renderOf(request, search));
  return [prompt, { tokens: prompt.prompt_token_ids, token_strs: prompt.prompt_token_strs }];
}

/**
 * Show the prompt of a request, which searches in documents where `search` is given: the declared tool is in it, and what searches have found. `unknown`
 * is true where nothing was kept of what an answer was asked with.
 */
export async function inspect(request, { search, unknown = false } = {}) {
  const dialog = byId("inspect");
  const body = byId("inspect-body");
  body.replaceChildren(el("p", {}, "Rendering…"));
  byId("inspect-model").textContent = request.model;
  dialog.showModal();
  try {
    const [prompt, tokens] = await both(request, search);
    const special = await specials(request.model, tokens);
    const hints = [
      unknown && "The model and the settings of this answer were not kept: this is the prompt by the present ones.",
      search && "With the tool that searches in documents, and the passages that searches found.",
    ];
    const told = hints.filter(Boolean).map((hint) => el("p", { class: "hint" }, hint));
    body.replaceChildren(facts(prompt), ...told, view(tokens, special));
  } catch (error) {
    body.replaceChildren(el("p", { class: "problem error", role: "alert" }, error.message));
  }
}

function facts({ count, max_model_len: most, stop, template }) {
  const parts = [`${count} tokens of ${most}`];
  if (template?.plugin) parts.push(`rendered by ${template.plugin} ${template.version} in ${template.microseconds} µs`);
  if (stop?.length) parts.push(`the template stops at ${stop.map((text) => JSON.stringify(text)).join(", ")}`);
  return el("p", { class: "facts" }, parts.join(" · "));
}

/** Ids of control tokens. Letters never become one, so a text that does not come back as its own token is one. */
async function specials(model, { tokens, token_strs: texts }) {
  const candidates = new Map();
  tokens.forEach((id, at) => {
    if (/^[<[].*[>\]]$/su.test(texts[at])) candidates.set(id, texts[at]);
  });
  const asked = [...candidates].slice(0, CANDIDATES).map(async ([id, text]) => {
    const plain = await tokenized({ model, prompt: text, add_special_tokens: false });
    return plain.tokens.length === 1 && plain.tokens[0] === id ? undefined : id;
  });
  return new Set(await Promise.all(asked));
}

/** Tokens one behind the other: control tokens framed, the others in two tints so that their ends can be seen. */
function view({ tokens, token_strs: texts }, special) {
  const made = tokens.map((id, at) => {
    const kind = special.has(id) ? "special" : at % 2 ? "odd" : "even";
    return el("span", { class: `piece ${kind}`, title: `token ${id}` }, texts[at]);
  });
  return el("pre", { class: "prompt", tabIndex: 0, "aria-label": "The prompt" }, ...made);
}
