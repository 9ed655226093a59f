//! Bounds of what is known of callers.

/// Keys that are issued, revoked ones included.
pub const MAX_KEYS: usize = 10_000;
/// Secrets of one key: the newest, and those that it replaced and that still hold.
pub const MAX_SECRETS: usize = 8;
/// Bytes of a key's id, of a tenant's name and of a pattern.
pub const MAX_NAME_BYTES: usize = 128;
/// Patterns in one list.
pub const MAX_PATTERNS: usize = 1_000;
/// Bytes of a token; a longer one is refused unread.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Bytes of a set of public keys.
pub const MAX_KEY_SET_BYTES: usize = 256 << 10;
/// Public keys of a set that are looked at.
pub const MAX_KEY_SET_KEYS: usize = 64;
/// Passwords that are checked at once; each takes 19 MiB and a processor for tens of milliseconds.
pub const MAX_LOGINS_AT_ONCE: usize = 2;
/// Logins that one address may try in a minute.
pub const MAX_LOGINS_PER_MINUTE: u32 = 10;
/// Addresses whose tries are remembered.
pub const MAX_LOGIN_ADDRESSES: usize = 10_000;
/// Bytes of a user name, and of a password.
pub const MAX_LOGIN_BYTES: usize = 1_024;
