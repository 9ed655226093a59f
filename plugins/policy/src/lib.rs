//! Default policy, access and rate limits: callers, what each may name, requests and tokens in a second, a minute and a
//! day, answers at once.
//!
//! The logic is plain Rust and is tested natively; `guest` joins it to the WIT world. Truth about
//! usage lives in the host's ledger, never in here: instances are many and disposable. Keys of the settings are
//! known by their SHA-256 or by the name of a secret that the host holds, and are never logged. Of issued keys and tokens the host says whom it recognised.

pub mod decide;
pub mod settings;

mod address;
mod caller;
mod glob;
#[cfg(target_family = "wasm")]
mod guest;
mod rates;
mod terms;
mod wit;
