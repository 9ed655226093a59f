type LlmError = {
  error: {
    code: string;
    message: string;
    details?: { available_models?: string[]; param?: string };
    retry_after_seconds?: integer;
  };
};

type LlmInference = {
  text: string;
  tokens_generated: integer;
  inference_time_ms: integer;
  model_used: string;
  lora_used: string | null;
  cache_hit: boolean;
  finish_reason: "stop" | "length" | "content_filter";
};

/** A piece of the text of a streamed answer. */
type LlmToken = { token: string; index: integer };

/** The last event of a streamed answer. */
type LlmDone = { done: true; tokens_generated: integer; inference_time_ms: integer };

/** A part of a document that the answer was made from; offsets are bytes of the document's text. */
type LlmSource = {
  number: integer;
  file_id: string;
  filename: string;
  similarity: number;
  start: integer;
  end: integer;
  text: string;
};

type LlmRetrieved = {
  documents_retrieved: integer;
  documents_used: integer;
  retrieval_time_ms: integer;
  /** An extension: the answer names them by their numbers. */
  sources: LlmSource[];
};

type LlmRag = LlmInference & LlmRetrieved;

type LlmRagDone = LlmDone & LlmRetrieved;

type LlmEmbedding = {
  embedding: number[];
  dimension: integer;
  model_used: string;
  inference_time_ms: integer;
};

type LlmModel = {
  model_id: string;
  /** For operators. */
  path?: string;
  status: "available" | "loading" | "loaded" | "unloading" | "failed";
  size_bytes: integer | null;
  format: "GGUF" | "safetensors" | null;
  n_layers: integer | null;
  loaded_timestamp?: string;
  last_used?: string;
  usage_count: integer;
};

type LlmModels = { models: LlmModel[] };

type LlmModelDetail = LlmModel & {
  version: string | null;
  architecture: string | null;
  n_heads: integer | null;
  n_embd: integer | null;
  n_vocab: integer | null;
  context_length: integer | null;
  memory_usage_mb: integer;
  gpu_layers: integer | null;
  pinned: boolean;
};

type LlmLoaded = {
  model_id: string;
  status: "available" | "loading" | "loaded" | "unloading" | "failed";
  load_time_ms: integer;
  memory_used_mb: integer;
};

type LlmIngested = {
  model_id: string;
  version: string | null;
  urn: string;
  size_bytes: integer;
  checksum: string | null;
  upload_time_ms: integer;
  replication_status: "local" | "pending" | "replicated" | "failed";
  shards_replicated: integer;
  total_shards: integer;
};

type LlmUnloaded = { model_id: string; status: "unloaded"; memory_freed_mb: integer };

type LlmLora = {
  lora_id: string;
  base_model: string;
  /** For operators. */
  path?: string;
  status: "available" | "loading" | "loaded" | "unloading";
  size_bytes: integer | null;
  rank: integer | null;
  alpha: number | null;
  loaded_timestamp?: string;
  last_used?: string;
  usage_count: integer;
};

type LlmLoras = { loras: LlmLora[] };

type LlmLoraDetail = LlmLora & { target_modules: string[] | null; scale: number; slot: integer | null };

type LlmLoraLoaded = {
  lora_id: string;
  base_model: string;
  status: "available" | "loading" | "loaded" | "unloading";
  load_time_ms: integer | null;
  slot: integer | null;
};

type LlmLoraUnloaded = { lora_id: string; status: "unloaded"; slot_freed: integer };

type LlmHoldings = { loaded: integer; total_available: integer; memory_used_mb: integer };

type LlmStats = {
  uptime_seconds: integer;
  total_requests: integer;
  successful_requests: integer;
  failed_requests: integer;
  active_requests: integer;
  queued_requests: integer;
  /** Over the last minute. */
  throughput: { requests_per_second: number; tokens_per_second: number };
  /** Of the last 1,024 requests that were answered. */
  latency: { p50_ms: number; p95_ms: number; p99_ms: number; avg_ms: number };
  models: LlmHoldings;
  loras: LlmHoldings;
  workers: { total: integer; busy: integer; idle: integer; utilization: number };
  gpu: {
    utilization: number | null;
    memory_used_mb: integer | null;
    memory_total_mb: integer | null;
  };
};

type LlmCaches = {
  response_cache: {
    hits: integer;
    misses: integer;
    hit_rate: number;
    total_entries: integer;
    memory_used_mb: number;
    avg_lookup_time_ms: number;
  };
  prefix_cache: {
    hits: integer;
    misses: integer;
    hit_rate: number;
    total_entries: integer;
    memory_used_mb: number;
    avg_tokens_saved: number;
  };
  model_metadata_cache: {
    hits: integer;
    misses: integer;
    hit_rate: number;
    total_entries: integer;
  };
  /** Adapters are held by their models. */
  lora_metadata_cache: null;
  kv_cache_buffer_pool: {
    total_buffers: integer;
    active_buffers: integer;
    buffer_reuse_count: integer;
  };
};

type LlmCleared = {
  cleared: "response" | "prefix" | "all";
  entries_removed: integer;
  memory_freed_mb: number;
};

type LlmWorkers = {
  workers: {
    worker_id: integer;
    model_id: string;
    status: "busy" | "idle";
    /** For operators, of a busy one. */
    current_request_id?: string;
    requests_processed: integer;
    total_processing_time_ms: integer;
    avg_processing_time_ms: number;
    utilization: number;
  }[];
};

type LlmHealth = {
  status: "healthy" | "unhealthy";
  timestamp: string;
  checks: {
    models_loaded: boolean;
    workers_active: boolean;
    gpu_available: boolean;
    queue_ok: boolean;
  };
};
