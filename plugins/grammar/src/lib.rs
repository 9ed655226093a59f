//! Constrains generation to a grammar: which tokens may come next, as a mask over the vocabulary.
//!
//! The grammars are llguidance's; this room decides how large they may be ([`source`]), keeps
//! compiled ones to fork from, and says where a matcher stands ([`engine`], [`matcher`]).
//!
//! The logic is plain Rust and is tested natively; `guest` joins it to the WIT world. Natively it
//! serves the host's tests as the oracle of masks: see [`engine::masks_for`].

pub mod engine;
pub mod error;
pub mod matcher;
pub mod source;

mod blame;
mod cache;
mod depth;
mod distinct;
#[cfg(target_family = "wasm")]
mod guest;
mod lark;
mod pointer;
mod rewrite;
