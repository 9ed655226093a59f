//! Text of PDF files. Files are untrusted: what reads them runs in the sandbox of plugins, with a bound on memory and time.
//!
//! The reading is plain Rust and is tested natively; `guest` joins it to the WIT world.

#[cfg(target_family = "wasm")]
mod guest;
mod layout;
mod lines;
mod pdf;

pub use pdf::{MAX_PAGES, MAX_TEXT_BYTES, Unread, pages};
