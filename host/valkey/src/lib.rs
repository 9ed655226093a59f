//! Counters that several hosts share, in Valkey or Redis.
//!
//! [`Valkey`] is one connection with its scripts, its lease and what happens when it is lost; [`LedgerCounters`] are
//! token buckets and places in it. Each change is one atomic script, so hosts cannot let through more together than one
//! host would alone.

mod address;
mod authorities;
mod config;
mod connect;
mod counters;
pub mod limits;
mod mirror;
mod scripts;
mod valkey;

pub use address::{AddressError, ServerAddress};
pub use authorities::ValkeyAuthorities;
pub use config::{ValkeyConfig, WhenLost};
pub use connect::ConnectError;
pub use counters::LedgerCounters;
pub use valkey::{Stats, Valkey};
