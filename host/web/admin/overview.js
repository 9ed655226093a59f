// Graphs of the whole server, its loaded models, and tenants with requests.

import { byId, notify, paused } from "./dom.js";
import { get } from "./api.js";
import { Chart, NamedChart } from "./charts.js";
import { bytes, duration, number, Table } from "./parts.js";

const count = (value) => number(value);
const memory = (mib) => (mib === null ? "–" : bytes(mib * 1024 * 1024));

/** Pause after the last change of a model before memory is read again, in milliseconds. */
const SETTLED = 500;

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
  #queues = new Table(
    "overview-queues",
    "Queues by tenant",
    [
      { title: "Model", text: ({ model }) => model },
      { title: "Tenant", text: ({ account }) => account ?? "(none)" },
      { title: "Weight", class: "number", text: ({ weight }) => number(weight) },
      { title: "Entitled", class: "number", text: ({ entitled }) => number(entitled) },
      { title: "Running", class: "number", text: ({ running }) => number(running) },
      { title: "Waiting", class: "number", text: ({ waiting }) => number(waiting) },
      { title: "Preempted", class: "number", text: ({ preempted }) => number(preempted) },
      { title: "Tokens so far", class: "number", text: ({ computed_tokens: tokens }) => number(tokens) },
      { title: "Mean wait", class: "number", text: ({ waited_ms_mean: mean }) => duration(mean ?? NaN) },
    ],
    ({ model, account }) => JSON.stringify([model, account]),
    "No loaded model has had a request.",
  );
  #gpus = new Table(
    "overview-gpus",
    "Memory of GPUs",
    [
      { title: "GPU", text: ({ index, name }) => `${index}: ${name}` },
      { title: "Used", class: "number", text: ({ used_mib: used }) => memory(used) },
      { title: "Of", class: "number", text: ({ total_mib: total }) => memory(total) },
    ],
    ({ index }) => `${index}`,
    "There is no GPU.",
  );
  #before;
  #queued;
  /** A model has come or gone, and its memory with it. */
  modelsChanged = paused(() => this.#readGpus().catch((error) => notify(error.message, "error")), SETTLED);
  #reading = false;

  constructor() {
    const charts = [this.#tokens, this.#first, this.#queue, this.#waiting, this.#kv, this.#requests, this.#failed];
    byId("charts").replaceChildren(...charts.map((chart) => chart.element));
  }

  async shown() {
    this.#queued = undefined;
    await Promise.all([this.#readQueues(), this.#readGpus()]);
  }

  /** The stream of events begins anew, so there is nothing to compare with. */
  connected() {
    this.#before = undefined;
  }

  async #readQueues() {
    const { data } = await get("v1/admin/queues");
    this.#queues.set(data.flatMap(({ model, tenants }) => tenants.map((tenant) => ({ ...tenant, model }))));
  }

  /** Memory of GPUs as it is now, or why there is none. */
  async #readGpus() {
    if (byId("view-overview").hidden) return;
    const { gpus, error } = await get("v1/admin/gpu-memory");
    this.#gpus.set(gpus);
    byId("gpus-why").textContent = error ?? "";
  }

  /** Queues have changed where requests have begun, waited or ended since they were read. */
  async #queuesNow(now) {
    const seen = JSON.stringify([now.requests_ended, now.tenants]);
    if (seen === this.#queued || this.#reading || byId("view-overview").hidden) return;
    [this.#queued, this.#reading] = [seen, true];
    await this.#readQueues().catch((error) => notify(error.message, "error"));
    this.#reading = false;
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
    this.#queuesNow(now);
  }
}
