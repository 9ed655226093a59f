//! Black-box scenarios over HTTP: the scripted backend says exactly what is expected, everything
//! else is the real thing.

mod answers;
mod bench;
mod config;
mod devices;
mod doors;
mod encoding;
mod engine;
mod errors;
mod gguf;
mod h2;
mod life;
mod memory;
mod model_files;
mod ollama;
mod selection;
mod threats;

use mortise_test_support as support;
