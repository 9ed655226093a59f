//! Bounds of what upstream servers send. `docs/limits.md` lists all bounds of the project.

use std::time::Duration;

/// Longest event of an answer's stream, and longest line of one, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;
/// Longest answer, in bytes of its stream.
pub const MAX_ANSWER_BYTES: usize = 256 << 20;
/// Numbers of one vector.
pub const MAX_DIMENSIONS: usize = 16 * 1024;
/// Bytes of an answer of vectors for each text that was asked about.
pub const MAX_EMBEDDING_BYTES: usize = 512 << 10;
/// Bytes of an answer of vectors beside those of its texts.
pub const MAX_EMBEDDING_ANSWER_BYTES: usize = 64 << 10;
/// Bytes of an error's body that are read.
pub const MAX_ERROR_BYTES: usize = 64 << 10;
/// Characters of an upstream's message that are passed on or logged.
pub const MAX_MESSAGE_CHARS: usize = 1000;
/// Tool calls of one answer.
pub const MAX_CALLS: usize = 128;
/// Longest id or name of a tool call, in bytes.
pub const MAX_CALL_NAME_BYTES: usize = 256;
/// Alternatives of a token's log-probability.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Headers of an answer.
pub const MAX_HEADERS: usize = 100;
/// Bytes of an answer's status line and headers.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Idle connections that are kept for each upstream.
pub const MAX_IDLE_CONNECTIONS: usize = 64;
/// Longest pause that an upstream asks for and that is waited for before a retry.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);
/// Longest time of one health check, or of asking for the list of models.
pub const MAX_CHECK_TIME: Duration = Duration::from_secs(5);
/// Longest list of models, in bytes.
pub const MAX_LIST_BYTES: usize = 1 << 20;
/// Models of one upstream that are served by `--upstream`.
pub const MAX_LISTED_MODELS: usize = 256;
/// Longest pause of an upstream that fails again and again.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Largest `retry-after` that is passed on, in seconds.
pub const MAX_RETRY_AFTER_SECONDS: u32 = 3600;
