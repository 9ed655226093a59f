// Common parts of the tests of the admin side's page.

import { ADMIN, ADMIN_API, ADMIN_KEY, open } from "./page.mjs";

/** Sections of the page. */
export const SECTIONS = ["overview", "models", "aliases", "adapters", "requests", "plugins", "collections", "keys", "audit"];

/** A page that is signed in, at a section. */
export async function signedIn(section = "overview", options = {}) {
  const opened = await open(`${ADMIN}#${section}`, options);
  await opened.page.fill("#key", ADMIN_KEY);
  await opened.page.click("#sign-in button");
  await opened.page.waitForSelector("body[data-live=true]");
  return opened;
}

export const row = (page, section, name) => page.locator(`#${section}-table tbody tr`, { hasText: name });

export const button = (page, name) => page.getByRole("button", { name, exact: true });

/** A request that goes on until it is cancelled. */
export function endless(model) {
  const body = { model, max_tokens: 30_000, messages: [{ role: "user", content: "Go on" }] };
  return fetch(`${ADMIN_API}v1/chat/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

export const json = (value) => ({ contentType: "application/json", body: JSON.stringify(value) });

export const modelRow = (name, more = {}) => ({
  name, aliases: [name], resolved_backend: name, architecture: name, runtime_state: "unloaded", is_loaded: false, pinned: false, hidden: false, inflight_requests: 0,
  queue_depth: 0, runtime_inflight: 0, usage_count: 0, last_error: name, progress: null, vram_estimate_mib: 1, context_length: 1, load_time_ms: null,
  load_constraints: { [name]: { kind: "choice", allowed_values: [name], null_means: name } }, ...more,
});

/** Events of a server, one after another, and then a stream that stays open. */
export const events = (all) => all.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");
