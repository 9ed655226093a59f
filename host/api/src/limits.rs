//! Bounds that only the dialects have. Those of a request's parts are in [`mortise_service::limits`].

use std::time::Duration;

use mortise_service::limits::MAX_JSON_DEPTH;

/// Most prompts in one completion request.
pub(crate) const MAX_PROMPTS: usize = 32;

/// Bytes of the `metadata` of a request, as JSON.
pub(crate) const MAX_METADATA_BYTES: usize = 16 * 1024;

/// Vector stores that one request searches in.
pub(crate) const MAX_SEARCHED_STORES: usize = 8;

/// Most items of one request, and of what goes before it.
pub(crate) const MAX_ITEMS: usize = 4096;

/// Most entries of a response's `tools`: functions, and tools of the server's.
pub(crate) const MAX_TOOL_ENTRIES: usize = 256;

/// Most responses that one continues, each by the `previous_response_id` of the next.
pub(crate) const MAX_CHAIN: usize = 1000;

/// Most items that are added to a conversation at once.
pub(crate) const MAX_ADDED_ITEMS: usize = 20;

/// Most responses that one caller has made in the background at once.
pub(crate) const MAX_BACKGROUND: usize = 64;

/// Longest idempotency key, in bytes.
pub(crate) const MAX_IDEMPOTENCY_KEY: usize = 255;

/// Longest answer that is kept for requests with the same idempotency key, and longest stream of a response that is
/// made in the background, in bytes.
pub(crate) const MAX_KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of one message of a WebSocket. Each socket reserves them of the memory for bodies.
pub(crate) const MAX_SOCKET_MESSAGE: usize = 512 * 1024;

/// Requests of a WebSocket that wait until the one before them is answered.
pub(crate) const MAX_SOCKET_WAITING: usize = 16;

/// Bytes of the items of a response that a WebSocket keeps so that it can be continued.
pub(crate) const MAX_RECENT_BYTES: usize = 4 * 1024 * 1024;

/// Time for which a WebSocket may stay open without a request or a ping.
pub(crate) const MAX_SOCKET_IDLE: Duration = Duration::from_secs(600);

/// Requests with idempotency keys that are answered at once. One caller or tenant has a quarter of them at most.
pub(crate) const MAX_EXECUTIONS: usize = 1024;

/// Bytes of all answers that are recorded for idempotency keys or made in the background, while they are made and read.
/// One address or tenant leaves a quarter of them to others.
pub(crate) const MAX_RECORDED_BYTES: usize = 64 * 1024 * 1024;

/// Memory of an upload, in bytes. Each reserves them of the memory for bodies.
pub(crate) const UPLOAD_MEMORY: usize = 1024 * 1024;

/// Time in which a file must be uploaded.
pub(crate) const MAX_UPLOAD_TIME: Duration = Duration::from_secs(1800);

/// Characters of the name of a file.
pub(crate) const MAX_FILE_NAME: usize = 255;

/// Collections of all callers that operators are shown; of more, the number is told.
pub(crate) const MAX_LISTED_COLLECTIONS: usize = 1000;

/// Bytes of a field of an upload, beside its file.
pub(crate) const MAX_FIELD_BYTES: usize = 256;

/// Files of one page of their list. The store gives a thousand of them at most.
pub(crate) const MAX_FILES_LISTED: usize = 10_000;

/// Lines of a batch.
pub(crate) const MAX_BATCH_LINES: usize = 50_000;

/// Characters of a `custom_id`.
pub(crate) const MAX_CUSTOM_ID: usize = 256;

/// Wrong lines that a failed batch tells.
pub(crate) const MAX_LINE_ERRORS: usize = 100;

/// Batches of one caller that have not ended.
pub(crate) const MAX_BATCHES: usize = 64;

/// Batches whose lines are checked at once; others wait.
pub(crate) const MAX_BATCH_CHECKS: usize = 2;

/// Time from the creation of a batch to its expiry: the `24h` of its `completion_window`.
pub(crate) const MAX_BATCH_TIME: Duration = Duration::from_secs(24 * 3600);

// A body's depth is bounded before it is parsed, by the bound that the service has for its parts.
const _: () = assert!(mortise_http::MAX_DEPTH == MAX_JSON_DEPTH);
/// Requests of other hosts to cancel work that are read together.
pub(crate) const MAX_CANCELLATIONS: usize = 1000;
