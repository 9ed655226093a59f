//! Default policy, access and rate limits: API keys, the models each may name, requests and tokens
//! per minute.
//!
//! The logic is plain Rust and is tested natively; `guest` joins it to the WIT world. Truth about
//! usage lives in the host's ledger, never in here: instances are many and disposable. Keys are
//! known by their SHA-256 or by the name of a secret that the host holds, and are never logged.

pub mod decide;
pub mod settings;

mod glob;
#[cfg(target_family = "wasm")]
mod guest;
