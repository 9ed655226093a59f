// Keys of callers with their scopes and limits.

import { byId, el, notify } from "./dom.js";
import { get, part, post, put, remove } from "./api.js";
import { Live } from "./live.js";
import { action, actions, badge, confirmed, form, moment, names, number, show, Table, whole } from "./parts.js";
import { Quotas } from "./quotas.js";

const KINDS = { active: "good", revoked: "bad", expired: "bad" };
const PATTERNS = [
  ["models", "Models"],
  ["routes", "Routes"],
  ["environments", "Environments"],
  ["tools", "Tools that may be declared"],
  ["server_tools", "Tools of the server"],
];
const COUNTS = [
  ["requests_per_second", "Requests a second"],
  ["requests_per_minute", "Requests a minute"],
  ["requests_per_day", "Requests a day"],
  ["tokens_per_minute", "Tokens a minute"],
  ["tokens_per_day", "Tokens a day"],
  ["max_concurrent", "Answers at once"],
  ["max_tokens", "Tokens of an answer"],
  ["priority", "Priority"],
];

const termsText = (terms) => Object.entries(terms).map(([name, value]) => `${name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.join(", ") : number(value)}`).join("; ") || "no limit";

export class Keys {
  #ended;
  #reading = false;
  /** The first event about limits has come. */
  #followed = false;
  #rows = new Map();
  #quotas = new Quotas();
  #live = new Live("keys", () => get("v1/admin/keys"), (told) => this.#listed(told), { quotas: (told) => this.#used(told) });
  #table = new Table(
    "keys-table",
    "Keys",
    [
      { title: "Key", text: ({ id }) => id },
      { title: "Tenant", text: ({ tenant }) => tenant ?? "–" },
      { title: "State", by: ({ state, secrets }) => [state, secrets], nodes: ({ state, secrets }) => [badge(state, KINDS[state]), secrets > 1 && el("span", { class: "small" }, `${secrets} secrets are taken`)] },
      { title: "Scopes and limits", text: ({ terms }) => termsText(terms) },
      { title: "Used", class: "used", by: ({ id }) => this.#quotas.of(id) ?? this.#followed, nodes: ({ id }) => this.#quotas.view(id, this.#followed) },
      { title: "Made", class: "tight", text: ({ created_at: at }) => moment(at) },
      { title: "Expires", class: "tight", text: ({ expires_at: at }) => (at === null ? "never" : moment(at)) },
      { title: "", by: (row) => row, nodes: (row) => this.#actions(row) },
    ],
    ({ id }) => id,
    "No key has been issued here. Keys of the configuration are not listed.",
  );

  #spend = new Table(
    "spend-table",
    "What requests cost, by account",
    [
      { title: "Day", class: "tight", text: ({ day }) => day },
      { title: "Account", text: ({ account }) => account },
      { title: "Requests", class: "number", text: ({ requests }) => number(requests) },
      { title: "Refused", class: "number", text: ({ refused }) => number(refused) },
      { title: "Reserved", class: "number", text: ({ reserved }) => reserved },
      { title: "Settled", class: "number", text: ({ settled }) => settled },
    ],
    ({ day, account }) => JSON.stringify([day, account]),
    "Nothing has cost anything yet.",
  );

  constructor() {
    byId("keys-actions").replaceChildren(action("New key", () => this.#create()));
  }

  async shown() {
    await this.#live.shown();
    await this.#spent();
  }

  hidden() {
    this.#live.hidden();
  }

  /** Requests may have ended since the last figures, and cost something. */
  async numbers({ requests_ended: ended }) {
    const before = this.#ended;
    this.#ended = ended;
    if (ended === before || this.#reading || byId("view-keys").hidden || byId("spend").hidden) return;
    this.#reading = true;
    await this.#spent().catch((error) => notify(error.message, "error"));
    this.#reading = false;
  }

  /** What requests cost, where models have prices. */
  async #spent() {
    let spend;
    try {
      spend = await get("v1/admin/spend");
    } catch (error) {
      if (error.code !== "no_prices") throw error;
    }
    byId("spend").hidden = !spend;
    if (!spend) return;
    byId("spend-title").textContent = `What requests cost, in ${spend.currency}`;
    const rows = spend.days.flatMap(({ begins_at: begins, accounts }) => accounts.map((row) => ({ ...row, day: moment(begins).slice(0, 10) })));
    this.#spend.set(rows);
  }

  #listed({ data }) {
    this.#rows = new Map(data.map((row) => [row.id, row]));
    this.#table.set(data);
  }

  /** Limits of some keys are used differently than before. */
  #used(told) {
    const changed = this.#quotas.take(told);
    // With the first event it is known which keys are not followed.
    const ids = this.#followed ? changed : this.#rows.keys();
    this.#followed = true;
    for (const row of [...ids].map((id) => this.#rows.get(id)).filter(Boolean)) this.#table.update(row);
  }

  #actions(row) {
    const of = (label) => ({ "aria-label": `${label} ${row.id}` });
    const live = row.state !== "revoked";
    return actions(
      live && action("Change", () => this.#change(row), of("Change")),
      live && action("Rotate", () => this.#rotate(row.id), of("Rotate")),
      live && action("Revoke", () => this.#revoke(row.id), { ...of("Revoke"), class: "danger" }),
      action("Delete", () => this.#delete(row.id), { ...of("Delete"), class: "danger" }),
    );
  }

  #create() {
    const fields = [{ name: "id", label: "Name", required: true }, ...fieldsOf({ terms: {} })];
    form("New key", fields, "Issue", async (values) => {
      const made = await post("v1/admin/keys", { id: values.id, ...bodyOf(values) });
      await this.#live.list();
      return () => tell(made);
    });
  }

  #change(row) {
    form(`Change ${row.id}`, fieldsOf(row), "Save", async (values) => {
      await put(`v1/admin/keys/${part(row.id)}`, bodyOf(values));
      await this.#live.list();
    });
  }

  #rotate(id) {
    const fields = [{ name: "overlap_seconds", label: "Seconds for which the old secret is still taken", value: "0" }];
    form(`Rotate ${id}`, fields, "Rotate", async (values) => {
      const made = await post(`v1/admin/keys/${part(id)}/rotate`, { overlap_seconds: whole(values, "overlap_seconds") ?? 0 });
      await this.#live.list();
      return () => tell(made);
    });
  }

  async #revoke(id) {
    if (!(await confirmed(`Revoke ${id}?`, "It is refused for good, from now on.", "Revoke"))) return;
    await post(`v1/admin/keys/${part(id)}/revoke`);
    await this.#live.list();
  }

  async #delete(id) {
    if (!(await confirmed(`Delete ${id}?`, "It is refused, and no longer listed.", "Delete"))) return;
    await remove(`v1/admin/keys/${part(id)}`);
    await this.#live.list();
  }
}

/** Show a secret, which the server tells once. */
function tell({ id, key }) {
  show(`The secret of ${id}`, el("p", {}, "The server tells it this once, and keeps only its hash."), el("pre", { id: "secret", tabIndex: 0 }, key));
}

function fieldsOf({ tenant, expires_at: expires, disabled, terms }) {
  return [
    { name: "tenant", label: "Tenant", value: tenant ?? "" },
    { name: "expires_at", label: "Expires, in UTC", value: expires ? moment(expires) : "", placeholder: "2030-01-31 12:00:00", hint: "empty: never" },
    { name: "disabled", label: "Refused for now", check: true, value: disabled === true },
    ...PATTERNS.map(([name, label]) => ({ name, label: `${label}, patterns with commas`, value: terms[name]?.join(", "), hint: "empty: all" })),
    ...COUNTS.map(([name, label]) => ({ name, label, value: terms[name] === undefined ? "" : String(terms[name]) })),
  ];
}

function bodyOf(values) {
  const terms = {};
  for (const [name] of PATTERNS) if (values[name]) terms[name] = names(values[name]);
  for (const [name] of COUNTS) {
    const count = whole(values, name);
    if (count !== undefined) terms[name] = count;
  }
  const body = { disabled: values.disabled, terms };
  if (values.tenant) body.tenant = values.tenant;
  if (values.expires_at) {
    const at = Date.parse(`${values.expires_at.replace(" ", "T")}Z`);
    if (Number.isNaN(at)) throw new Error("the expiry must be as in 2030-01-31 12:00:00");
    body.expires_at = Math.floor(at / 1000);
  }
  return body;
}
