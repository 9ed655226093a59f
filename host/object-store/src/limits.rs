//! Bounds of what a store answers, and of what is sent to it.

use std::time::Duration;

/// Time in which a connection to the store must be there.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which the store may be silent before an answer, and between two pieces of one; and for which it may not read.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which an object must have brought [`LEAST_PROGRESS_BYTES`] more, or the connection is given up.
pub const PROGRESS_TIME: Duration = Duration::from_secs(60);
/// Bytes that an object brings in [`PROGRESS_TIME`] at least.
pub const LEAST_PROGRESS_BYTES: u64 = 64 << 10;
/// Attempts in a row that bring nothing, after which a request is given up.
pub const MAX_ATTEMPTS: u32 = 3;
/// Longest page of a list of objects, in bytes.
pub const MAX_PAGE_BYTES: u64 = 4 << 20;
/// Longest other answer in XML, in bytes.
pub const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// Objects of one list.
pub const MAX_LISTED: usize = 20_000;
/// Pages of one list.
pub const MAX_PAGES: usize = 1_000;
/// Parts that a file is sent in, which are larger where they would be more; the protocol's bound is 10,000.
pub const MAX_PARTS: u64 = 9_000;
