//! Our side of WebAssembly: load, limit, call. The only room that knows wasmtime.

mod error;
mod kinds;

pub use error::{Fault, PluginError};
pub use kinds::*;
