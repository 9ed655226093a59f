//! Black-box scenarios over HTTP: the scripted backend says exactly what is expected, everything
//! else is the real thing.

mod answers;
mod anthropic;
mod batches;
mod bench;
mod bodies;
mod commands;
mod config;
mod contract;
mod devices;
mod doors;
mod encoding;
mod endings;
mod engine;
mod errors;
mod faults;
mod file_search;
mod files;
mod gguf;
mod h2;
mod h2_letter;
mod helpers;
mod idempotency;
mod killed;
mod letter;
mod life;
mod limits;
mod llm;
mod logs;
mod memory;
mod model_files;
mod ollama;
mod operations;
mod playground;
mod responses;
mod retrieval;
mod security_table;
mod selection;
mod silence;
mod sockets;
mod strangers;
mod threats;
mod tls;
mod tokens;
mod waiting;

use mortise_test_support as support;
