//! Bounds of the admin API.

/// Longest body of a request.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
