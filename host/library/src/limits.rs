//! Bounds of models that come over the network.

use std::time::Duration;

/// Longest name of a model that is uploaded, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name of a file of a model, in bytes.
pub const MAX_FILE_NAME_BYTES: usize = 128;
/// Longest version and description of a model, in bytes.
pub const MAX_ABOUT_BYTES: usize = 1024;
/// Files of one model that is uploaded.
pub const MAX_FILES: usize = 24;
/// Longest entry that is read, in bytes.
pub const MAX_ENTRY_BYTES: u64 = 64 * 1024;
/// Models of a library.
pub const MAX_ENTRIES: usize = 10_000;
/// Pulls that download at once; further ones wait.
pub const MAX_PULLS_AT_ONCE: usize = 2;
/// Pulls that download or wait.
pub const MAX_ACTIVE_PULLS: usize = 16;
/// Pulls that have ended and are still listed.
pub const MAX_ENDED_PULLS: usize = 64;
/// Uploads in chunks that are not complete.
pub const MAX_UPLOADS: usize = 16;
/// Uploads as forms that arrive at once.
pub const MAX_FORMS_AT_ONCE: usize = 4;
/// Time after which an upload of which nothing comes is removed, and so the part of a file that a pull has left.
pub const MAX_PARTIAL_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Events of pulls that a slow listener of the admin side may lag behind before it misses some.
pub const MAX_PULL_BACKLOG: usize = 256;
/// Files of one model in an object store.
pub const MAX_STORED_FILES: usize = 512;
/// Parts of the path of a file below the folder of its model, in an object store.
pub const MAX_FILE_DEPTH: usize = 4;
/// Pause after a first attempt to copy a model to the object store that failed; it doubles.
pub const COPY_PAUSE: Duration = Duration::from_secs(5);
/// Longest of these pauses.
pub const MAX_COPY_PAUSE: Duration = Duration::from_secs(300);
