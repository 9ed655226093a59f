//! Bounds of the admin API.

/// Longest body of a request.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// Most bytes that are read of what the GPU tool writes.
pub const MAX_GPU_TOOL_BYTES: u64 = 64 * 1024;
