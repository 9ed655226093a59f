//! Version 0.2 of the contract, the present one: its bindings, and the conversion between its types and
//! the host's.

pub(crate) mod bindings;
pub(crate) mod convert;
#[allow(clippy::duplicate_mod, reason = "see `crate::versions`")]
#[path = "../versions/exports.rs"]
mod exports;
#[allow(clippy::duplicate_mod, reason = "see `crate::versions`")]
#[path = "../versions/unchanged.rs"]
mod unchanged;
