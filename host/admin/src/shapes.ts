type AdminError = {
  error: { message: string; type: string; param: string | null; code: string };
  /** Models whose settings cannot change while they are loaded. */
  conflicts?: { model: string; state: string; change: "removed" | "updated" }[];
};

type ModelState = "unloaded" | "loading" | "loaded" | "unloading" | "failed";

type LoadProgress = {
  stage: string;
  file: string | null;
  bytes_done: integer;
  bytes_total: integer;
};

type ModelRow = {
  name: string;
  aliases: string[];
  origin: "configured" | "discovered";
  resolved_backend: "engine" | "scripted" | "upstream" | "child";
  configured_enabled: boolean;
  runtime_state: ModelState;
  is_loaded: boolean;
  pinned: boolean;
  hidden: boolean;
  owned_by: string;
  deprecation_date: string | null;
  replicas: integer;
  replica_max: integer;
  loaded_replicas: integer;
  inflight_requests: integer;
  queue_depth: integer;
  runtime_inflight: integer;
  /** Requests that are answered at once, if the configuration says so for this model. */
  configured_target_inflight: integer | null;
  /** The same as the loaded runtime has it. */
  effective_target_inflight: integer | null;
  usage_count: integer;
  idle_seconds: integer | null;
  loaded_at_ms: integer | null;
  load_time_ms: integer | null;
  last_error: string | null;
  progress: LoadProgress | null;
  vram_estimate_mib: integer;
  vram_estimate_replica_count: integer;
  vram_estimate_source: string;
  architecture: string | null;
  context_length: integer | null;
  capabilities: string[] | null;
  /** Inputs and outputs, once it is loaded. */
  features: {
    modalities: string[];
    file_inputs: string[];
    multi_turn: boolean;
    thinking_modes: string[];
    response_formats: string[];
  } | null;
  /** The model as the configuration has it. */
  definition: {
    path: string | null;
    hf: string | null;
    command: any;
    group: string | null;
    quantize: string | null;
    draft_model: string | null;
    /** The engine of this model; null where it is as for all. */
    engine: {
      device: string | null;
      max_context: integer | null;
      kv_type: string | null;
      kv_cache_mib: integer | null;
      max_batch: integer | null;
      prefix_cache: boolean | null;
    };
    /** Values for requests that say nothing; null where they are as for all. */
    defaults: {
      temperature: number | null;
      top_p: number | null;
      top_k: integer | null;
      min_p: number | null;
      repetition_penalty: number | null;
      max_tokens: integer | null;
      template_arguments: object;
    };
    loras: string[];
    load_on_demand: boolean | null;
    idle_timeout_seconds: integer | null;
  };
  /** Settings of the load in force. */
  load_override: object | null;
  /** What the settings of a load may be, from which a form can be made. */
  load_constraints: object;
  /** Settings of a load that go well together. */
  load_recommendations: { settings: object; note: string }[];
};

type ModelRows = {
  object: "list";
  data: ModelRow[];
  /** Changes can be kept for the next start: `admin.persist` names a file. */
  can_persist: boolean;
};

type ModelLog = {
  model: string;
  written: integer;
  lines: { number: integer; at_ms: integer; text: string }[];
};

type Canary = { target: string; percent: number; tenants: string[] };
type Alias = { target: string; canary: Canary | null };

type AliasNumbers = {
  /** Answers that ended, and requests that failed before they began. */
  requests: integer;
  /** Those that failed. */
  errors: integer;
  /** Of those, the ones for whose model there was no room. */
  no_room: integer;
  /** Time from arrival to the end: mean, median and 99th percentile. */
  mean_latency_ms: number;
  p50_latency_ms: number;
  p99_latency_ms: number;
  /** Time from arrival to the first token. */
  mean_first_token_ms: number;
  p50_first_token_ms: number;
  p99_first_token_ms: number;
};

type AliasRow = Alias & {
  name: string;
  previous: Alias | null;
  /** Models that the alias means and that are not there. */
  missing: string[];
  /** Numbers of each model that the alias chose. */
  targets: { [model: string]: AliasNumbers };
};

type AliasRows = { object: "list"; data: AliasRow[] };
type SpendLine = {
  /** Requests that ended. */
  requests: integer;
  /** Amounts are texts in units of the currency. Reserved for requests under way: */
  reserved: string;
  /** Charged: */
  settled: string;
  /** Reserved and not used: */
  released: string;
  /** Requests that were charged all that was reserved, since nobody knows what they used. */
  unknown_usage: integer;
  /** Requests that were refused for want of money. */
  refused: integer;
};
type Spend = {
  object: "spend";
  currency: string;
  /** Today, then the day before; days are those of UTC. */
  days: {
    /** Seconds since 1970. */
    begins_at: integer;
    accounts: (SpendLine & { account: string })[];
    models: (SpendLine & { model: string })[];
  }[];
};

type DeletedAlias = { name: string; deleted: true };

type RefusedFile = { file: string | null; reason: string };

type Plugins = {
  generation: integer;
  serving: object[];
  files: {
    file: string;
    version: string;
    built_against: string | null;
    digest: string;
    kinds: string[];
  }[];
  /** Bindings in the order of the configuration, then those of the admin side. */
  bindings: object[];
  rejected: RefusedFile[];
  error: string | null;
  breakdowns: object[];
  overdue?: { step: string; seconds: integer };
};

type PluginReload = {
  generation: integer;
  changed: any;
  rejected: RefusedFile[];
  error: string | null;
};

type PluginFileCheck = {
  file: string;
  version: string;
  digest: string;
  kinds: string[];
  built_against: string;
  /** Golden cases that it carries and has passed. */
  cases: integer;
  /** True if one of `plugins.trusted_keys` signed it. */
  signed: boolean;
};

/** `changed` is true if something else serves now. */
type PluginFileChange = PluginFileCheck & { changed: boolean };
type DeletedPluginFile = { file: string; deleted: true };

type PluginFiles = {
  object: "list";
  data: {
    file: string;
    path: string;
    /** False if it is gone and has versions. */
    present: boolean;
  }[];
};

type PluginVersions = {
  object: "list";
  file: string;
  data: {
    digest: string;
    bytes: integer;
    signed: boolean;
    /** Time at which another version took its place, in seconds since 1970. */
    replaced_at: integer;
  }[];
};

type PluginBinding = {
  name: string | null;
  kind: string;
  /** Null: the plugin of the folder, or the embedded one. */
  file: string | null;
  models: string[];
  architectures: string[];
  tenants: string[];
  routes: string[];
  /** Policies and guardrails are asked in rising order. */
  order: integer;
  on_failure: string;
  /** True if it was made on this side and can be changed here. */
  changeable: boolean;
  /** Those of a binding that can be changed here. */
  settings?: object;
};

type PluginBindings = { object: "list"; data: PluginBinding[] };
type DeletedPluginBinding = { name: string; deleted: true };

type SettingsReload = {
  added: string[];
  removed: string[];
  updated: string[];
  unchanged: string[];
  service_restart_required: boolean;
  restart_keys: string[];
  /** What is right and may mean something else than what was wanted, such as an alias whose model is not there. */
  warnings: string[];
  plugins: any;
};

/** Changes that a reload would bring. */
type SettingsCheck = {
  added: string[];
  removed: string[];
  updated: string[];
  unchanged: string[];
  /** Loaded models for which a reload would be refused. */
  conflicts: { model: string; state: string; change: "removed" | "updated" }[];
  /** Keys that take effect at a reload. */
  reload_keys: string[];
  service_restart_required: boolean;
  restart_keys: string[];
  warnings: string[];
};

/** An account in the engines of a model: `tenant NAME`, or `caller NAME` without a tenant; null is nobody in particular. */
type TenantQueue = {
  account: string | null;
  /** 0 without sequences. */
  weight: integer;
  /** Places of the batch that it is entitled to at present. */
  entitled: integer;
  running: integer;
  waiting: integer;
  waiting_tokens: integer;
  preempted: integer;
  /** Blocks of the KV cache that count for it. */
  kv_blocks: integer;
  /** Tokens computed since it has an account: while it has sequences, and until others have caught up. */
  computed_tokens: integer;
  /** Sequences that have left the queue, and how long they waited in the mean. */
  dequeued: integer;
  waited_ms_mean: number | null;
};
type Queues = {
  object: "list";
  data: {
    model: string;
    running: integer;
    max_running: integer;
    waiting: integer;
    waiting_tokens: integer;
    preempted: integer;
    /** Those with most sequences first, 100 at most; empty where another server decides. */
    tenants: TenantQueue[];
    tenants_total: integer;
  }[];
};

type Rescan = {
  status: "rescanned";
  new_models: integer;
  removed: integer;
  models: { added: string[]; removed: string[]; updated: string[]; in_use: string[] };
  skipped: { path: string; reason: string }[];
  /** Aliases whose models are not there. */
  warnings: string[];
};

type Restarted = { status: "reloaded" };

type LoraRow = {
  lora_id: string;
  base_model: string;
  path: string;
  scale: number;
  status: "available" | "loading" | "loaded" | "unloading";
  /** These are null while it is not loaded. */
  size_bytes: integer | null;
  rank: integer | null;
  alpha: number | null;
  target_modules: string[] | null;
  slot: integer | null;
  loaded_timestamp: string | null;
  load_time_ms: integer | null;
  usage_count: integer;
  last_error: string | null;
};

type LoraRows = { loras: LoraRow[] };

type LoadedLora = {
  lora_id: string;
  base_model: string;
  status: "loaded";
  load_time_ms: integer;
  slot: integer;
};

type UnloadedLora = {
  lora_id: string;
  base_model: string;
  status: "unloaded";
  slot_freed: integer;
};

type RequestRow = {
  id: string;
  model: string;
  subject: string;
  tenant: string | null;
  state: "waiting" | "running";
  age_ms: integer;
  queued_ms: integer | null;
  first_token_ms: integer | null;
  prompt_tokens: integer;
  completion_tokens: integer;
};

/** `data` has the oldest ones, and `total` is how many there are. */
type RequestRows = { object: "list"; data: RequestRow[]; total: integer };
type CancelledRequest = { id: string; cancelled: true };

type AuditEntries = { object: "list"; data: object[] };

/** Figures since the start; those of first tokens are of the last minute. */
type Numbers = {
  requests_ended: integer;
  requests_failed: integer;
  generated_tokens: integer;
  first_token_p50_ms: integer | null;
  first_token_p95_ms: integer | null;
  tenants: { tenant: string | null; waiting: integer; running: integer }[];
  /** The loaded ones. */
  models: {
    model: string;
    in_flight: integer;
    uses: integer;
    running: integer;
    waiting: integer;
    kv_blocks_used: integer;
    kv_blocks_total: integer;
  }[];
};

type PluginNumbers = {
  generation: integer;
  plugins: {
    plugin: string;
    version: string;
    kind: string;
    instances: integer;
    suspended: integer;
    suspensions: integer;
    memory_peak_bytes: integer;
    image_bytes: integer;
    prepared_anew: string | null;
    calls: integer;
    seconds: number;
    faults: { [fault: string]: integer };
  }[];
};

/**
 * Data of an event: `model.state`, `model.progress`, `model.circuit`, `model.pull`, `numbers`, `requests`, `plugins`, `aliases`, `loras`, `keys`,
 * `collections`, `audit.entry` or `missed`.
 */
type AdminEvent =
  | Numbers
  | RequestRows
  | PluginNumbers
  | AliasRows
  | LoraRows
  | KeyRows
  | { object: "list"; data: KeyQuotas[] }
  | CollectionRows
  | { model: string; state: ModelState; error: string | null; at_ms?: integer }
  | { model: string; circuit: "closed" | "open" | "half_open" }
  | (LoadProgress & { model: string; state: ModelState; at_ms: integer })
  | PullRow
  | { events: integer };

type GpuMemory = {
  gpus: {
    index: integer;
    name: string;
    used_mib: integer | null;
    total_mib: integer | null;
    /** From 0 to 1. */
    used_over_total: number | null;
  }[];
  models: {
    name: string;
    runtime_state: string;
    is_loaded: boolean;
    loaded_replicas: integer;
    vram_estimate_mib: integer;
    vram_estimate_replica_count: integer;
    vram_estimate_source: string;
  }[];
  /** Why there are no GPUs in the answer. */
  error: string | null;
};
/** Scopes and limits; what is absent is not limited. */
type KeyLimits = {
  models?: string[];
  routes?: string[];
  environments?: string[];
  tools?: string[];
  server_tools?: string[];
  requests_per_second?: integer;
  requests_per_minute?: integer;
  requests_per_day?: integer;
  tokens_per_minute?: integer;
  tokens_per_day?: integer;
  max_concurrent?: integer;
  max_tokens?: integer;
  priority?: integer;
};

type KeyRow = {
  object: "api_key";
  id: string;
  tenant: string | null;
  state: "active" | "disabled" | "expired" | "revoked";
  created_at: integer;
  expires_at: integer | null;
  disabled: boolean;
  revoked_at: integer | null;
  /** Secrets that are taken: more than one while a rotation overlaps. */
  secrets: integer;
  terms: KeyLimits;
};

type KeyRows = { object: "list"; data: KeyRow[] };

/** A limit that requests of a key count against. */
type KeyQuota = {
  /** Plugin that counts it. */
  policy: string;
  /** Name that the policy gives it, such as `requests_per_minute`. */
  name: string;
  unit: "requests" | "tokens" | "answers" | "other";
  /** Holder that shares it with others, such as `tenant acme`; null is the key alone. */
  shared_by: string | null;
  limit: integer;
  /** More than the limit where answers were longer than what was reserved for them. */
  used: integer;
  remaining: integer;
  /** Time in which it refills evenly; null where answers give it back. */
  period_ms: integer | null;
  /** Seconds since 1970 at which nothing is used any more; null where nothing is, and where answers give it back. */
  resets_at: integer | null;
};

/** Limits of a key with their use; null where no policy tells them. `reason` is null where all policies tell theirs. */
type KeyQuotas = {
  object: "key_quotas";
  id: string;
  quotas: KeyQuota[] | null;
  reason: string | null;
};

type KeyQuotaRows = { object: "list"; data: KeyQuotas[]; has_more: boolean };
type KeyWithSecret = KeyRow & { key: string };
type DeletedKey = { id: string; deleted: true };

/** A model that was pulled or uploaded. */
type LibraryRow = {
  name: string;
  urn: string;
  source: "pull" | "upload";
  size_bytes: integer;
  /** As `sha256:DIGEST`; null of a model that was pulled. */
  checksum: string | null;
  version: string | null;
  description: string | null;
  added_at: integer;
  /** Its files are on the disk of this server; else they come from the object store when the model is loaded. */
  on_disk: boolean;
  /** `local` without an object store. */
  replication_status: "local" | "pending" | "replicated" | "failed";
  /** Failure of the last attempt to copy it to the object store, which is made again. */
  replication_error: string | null;
};

type LibraryRows = { object: "list"; data: LibraryRow[] };
type RemovedModel = { name: string; deleted: true };

type PullRow = {
  id: string;
  model: string;
  state: "queued" | "downloading" | "cancelling" | "completed" | "failed" | "cancelled";
  /** File that is coming. */
  file: string | null;
  bytes_done: integer;
  bytes_total: integer;
  bytes_received: integer;
  error: string | null;
  created_at_ms: integer;
  ended_at_ms: integer | null;
};

type PullRows = { object: "list"; data: PullRow[] };

type UploadedModel = LibraryRow & {
  upload_time_ms: integer | null;
  shards_replicated: integer;
  total_shards: integer;
};

type UploadRow = {
  id: string;
  model_id: string;
  file_name: string | null;
  /** Of several files, in the order in which they come. */
  files: { name: string; size_bytes: integer }[];
  size_bytes: integer;
  /** Bytes that have come: where the next chunk begins. */
  offset: integer;
};

type UploadRows = { object: "list"; data: UploadRow[] };
type CancelledUpload = { id: string; deleted: true };
