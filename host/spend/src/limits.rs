//! Bounds of what is kept of the cost of requests.

/// Accounts whose totals of a day are told apart; those beyond go under one name.
pub const MAX_ACCOUNTS: usize = 10_000;

/// Models whose totals of a day are told apart; those beyond go under one name.
pub const MAX_PRICED_MODELS: usize = 1_000;

/// Bytes of entries that wait for the ledger; more are lost, or refuse requests where the ledger is required.
pub const MAX_LEDGER_QUEUE_BYTES: usize = 1 << 20;

/// Bytes at the end of a ledger that are looked through for reservations without an end.
pub const MAX_LEDGER_TAIL_BYTES: u64 = 8 << 20;
