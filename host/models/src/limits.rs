//! Bounds of conversations and of models. `docs/limits.md` lists all bounds of the project.

/// Most messages of one conversation.
pub const MAX_MESSAGES: usize = 4096;
/// Deepest nesting of arrays and objects in any JSON of a request.
pub const MAX_JSON_DEPTH: usize = 120;
/// Most tools that a request declares.
pub const MAX_TOOLS: usize = 128;
/// Longest name of a tool, in bytes.
pub const MAX_TOOL_NAME_BYTES: usize = 64;
/// Longest base URL of a server that answers for a model, in bytes.
pub const MAX_BASE_URL_BYTES: usize = 2048;

/// Aliases that can be switched while the server runs.
pub const MAX_ALIASES: usize = 1000;
/// Longest name of an alias, in bytes.
pub const MAX_ALIAS_BYTES: usize = 256;
/// Tenants that a canary names.
pub const MAX_CANARY_TENANTS: usize = 1000;

/// Entries of folders that one scan for models reads.
pub const MAX_SCANNED_ENTRIES: usize = 100_000;
/// Folders within one another that a scan for models goes down.
pub const MAX_SCANNED_DEPTH: usize = 8;
/// Files of weights that the index of one model in a folder names.
pub const MAX_SHARD_FILES: usize = 1 << 10;
/// Longest name of a model that is found by a scan, in bytes.
pub const MAX_MODEL_NAME_BYTES: usize = 256;

/// Events of models that a slow listener of the admin side may lag behind before it misses some.
pub const MAX_EVENT_BACKLOG: usize = 256;

/// Bytes of the vectors of texts that may be asked for again, of one embedding model.
pub const MAX_CACHED_VECTOR_BYTES: usize = 16 * 1024 * 1024;

/// Adapters that one model may have, loaded or not.
pub const MAX_ADAPTERS: usize = 64;
/// Bytes of the name of an adapter.
pub const MAX_ADAPTER_NAME_BYTES: usize = 128;

/// Lines of output that are kept of the processes of one model.
pub const MAX_OUTPUT_LINES: usize = 1000;
/// Longest line of a process's output that is kept, in bytes; what is longer is cut.
pub const MAX_OUTPUT_LINE_BYTES: usize = 4096;
