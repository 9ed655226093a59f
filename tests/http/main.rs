//! Black-box scenarios over HTTP: the scripted backend says exactly what is expected, everything
//! else is the real thing.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bench;
mod config;
mod doors;
mod engine;
mod errors;
mod gguf;
mod life;
mod threats;
