//! Version 0.1 of the contract, for components that were built long ago: its bindings, and the conversion
//! between its types and the host's. It is frozen; the present version is [`crate::v0_2`].

pub(crate) mod bindings;
pub(crate) mod convert;
#[allow(clippy::duplicate_mod, reason = "see `crate::versions`")]
#[path = "../versions/exports.rs"]
mod exports;
#[allow(clippy::duplicate_mod, reason = "see `crate::versions`")]
#[path = "../versions/unchanged.rs"]
mod unchanged;
