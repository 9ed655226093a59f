// Graphs of the whole server, its loaded models, and tenants with requests.

import { byId } from "./dom.js";
import { Chart, NamedChart } from "./charts.js";
import { duration, number, Table } from "./parts.js";

const count = (value) => number(value);

export class Overview {
  #tokens = new Chart("Tokens a second", ["tokens"], count);
  #requests = new Chart("Requests a minute", ["ended"], count);
  #first = new Chart("Time to first token, p50 / p95", ["p50", "p95"], duration, 10);
  #queue = new Chart("Requests running / waiting", ["running", "waiting"], count);
  #waiting = new NamedChart("Waiting, by tenant");
  #kv = new Chart("KV cache in use", ["KV cache"], (part) => `${number(part * 100)} %`, 0.01);
  #failed = new Chart("Failed requests a minute", ["failed"], count);
  #models = new Table(
    "overview-models",
    "Loaded models",
    [
      { title: "Model", text: ({ model }) => model },
      { title: "Running", class: "number", text: ({ running }) => number(running) },
      { title: "Waiting", class: "number", text: ({ waiting }) => number(waiting) },
      { title: "Requests so far", class: "number", text: ({ uses }) => number(uses) },
      { title: "KV cache", class: "number", text: ({ kv_blocks_used: used, kv_blocks_total: total }) => (total ? `${number((100 * used) / total)} % of ${number(total)} blocks` : "–") },
    ],
    ({ model }) => model,
    "No model is loaded.",
  );
  #tenants = new Table(
    "overview-tenants",
    "Tenants with requests",
    [
      { title: "Tenant", text: ({ tenant }) => tenant ?? "(none)" },
      { title: "Running", class: "number", text: ({ running }) => number(running) },
      { title: "Waiting", class: "number", text: ({ waiting }) => number(waiting) },
    ],
    ({ tenant }) => `${tenant}`,
    "No request is being answered.",
  );
  #before;

  constructor() {
    const charts = [this.#tokens, this.#first, this.#queue, this.#waiting, this.#kv, this.#requests, this.#failed];
    byId("charts").replaceChildren(...charts.map((chart) => chart.element));
  }

  /** The stream of events begins anew, so there is nothing to compare with. */
  connected() {
    this.#before = undefined;
  }

  numbers(now) {
    const at = performance.now();
    const before = this.#before;
    this.#before = { ...now, at };
    const sum = (field) => now.models.reduce((all, model) => all + model[field], 0);
    const rate = (field) => {
      const seconds = before ? (at - before.at) / 1000 : 0;
      return seconds > 0 ? Math.max(0, now[field] - before[field]) / seconds : null;
    };
    const [ended, failed] = [rate("requests_ended"), rate("requests_failed")];
    this.#tokens.push(rate("generated_tokens"));
    this.#requests.push(ended === null ? null : ended * 60);
    this.#failed.push(failed === null ? null : failed * 60);
    this.#first.push(now.first_token_p50_ms, now.first_token_p95_ms);
    const requests = (field) => now.tenants.reduce((all, tenant) => all + tenant[field], 0);
    this.#queue.push(requests("running"), requests("waiting"));
    this.#waiting.push(new Map(now.tenants.map(({ tenant, waiting }) => [tenant ?? "(none)", waiting])));
    const total = sum("kv_blocks_total");
    this.#kv.push(total ? sum("kv_blocks_used") / total : null);
    this.#models.set(now.models);
    this.#tenants.set(now.tenants);
  }
}
