//! Bounds of what is kept of the cost of requests.

/// Accounts whose totals of a day are told apart; those beyond go under one name.
pub const MAX_ACCOUNTS: usize = 10_000;

/// Models whose totals of a day are told apart; those beyond go under one name.
pub const MAX_PRICED_MODELS: usize = 1_000;
