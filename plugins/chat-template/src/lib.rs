//! Renders conversations with the Jinja template of a model, byte for byte as Hugging Face's `transformers` would.
//!
//! [`mortise_jinja`] renders, and is tested natively; `guest` joins it to the WIT world.

pub use mortise_jinja::{render, segments};

#[cfg(target_family = "wasm")]
mod guest;
