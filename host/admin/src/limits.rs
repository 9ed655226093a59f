//! Bounds of the admin API.

use std::time::Duration;

/// Longest body of a request.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Longest settings that are compared with those in force, as JSON.
pub const MAX_SETTINGS_BYTES: usize = 1024 * 1024;
/// Bytes of a form beside its files.
pub const MAX_FORM_BYTES: usize = 64 * 1024;
/// Time in which more of an upload must arrive.
pub const MAX_UPLOAD_PAUSE: Duration = Duration::from_secs(60);
/// Time in which all of a form must arrive.
pub const MAX_UPLOAD_TIME: Duration = Duration::from_secs(24 * 3600);

/// Bytes of a plugin that is sent: the largest that is loaded.
pub const MAX_PLUGIN_BYTES: usize = 64 * 1024 * 1024;
/// Time in which all of it must arrive.
pub const MAX_PLUGIN_TIME: Duration = Duration::from_secs(300);
/// Plugins that are sent at once.
pub const MAX_PLUGIN_UPLOADS: usize = 2;

/// Bindings of plugins that are made on the admin side.
pub const MAX_KEPT_BINDINGS: usize = 256;
/// Longest name of such a binding.
pub const MAX_BINDING_NAME_BYTES: usize = 128;

/// Requests that are listed at once; of more, the number is told.
pub const MAX_LISTED_REQUESTS: usize = 200;
/// Tenants whose requests are told apart in figures.
pub const MAX_LISTED_TENANTS: usize = 20;
/// Tenants of a model whose queues are told apart.
pub const MAX_LISTED_QUEUES: usize = 100;
/// Keys whose limits are listed at once, and told of by events.
pub const MAX_LISTED_QUOTAS: usize = 1_000;
/// Readers of the stream of events at once.
pub const MAX_EVENT_STREAMS: usize = 32;
/// Time between two looks at what the stream of events tells of.
pub const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Entries of the audit log that are kept in memory for the admin side.
pub const MAX_RECENT_AUDIT_ENTRIES: usize = 500;
/// Entries that a slow reader of the audit log may lag behind.
pub const MAX_AUDIT_BACKLOG: usize = 256;

/// Most bytes that are read of what the GPU tool writes.
pub const MAX_GPU_TOOL_BYTES: u64 = 64 * 1024;
/// Refused requests that the audit log tells of, one by one, in a window of time.
pub const MAX_REFUSALS_AUDITED: u32 = 20;
/// The window.
pub const REFUSALS_WINDOW: Duration = Duration::from_secs(60);
/// Longest path in an entry of the audit log.
pub const MAX_AUDITED_PATH_CHARS: usize = 512;
