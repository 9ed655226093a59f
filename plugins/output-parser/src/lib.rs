//! Splits what a model generates into content, reasoning and tool calls, as it arrives, and writes
//! the grammar under which that cannot fail.
//!
//! Two formats of calls are read: `<tool_call>{"name": …, "arguments": …}</tool_call>` (Hermes and
//! Qwen) and `{"name": …, "parameters": …}` alone or behind `<|python_tag|>` (Llama 3). Reasoning
//! stands between `<think>` and `</think>` at the start of an answer.
//!
//! The text is taken character by character by a state machine, so neither the result nor the time
//! depends on how it was cut. What turns out not to be a call is handed back as content, exactly
//! as generated.
//!
//! The logic is plain Rust and is tested natively; `guest` joins it to the WIT world.

pub mod constraint;
pub mod session;
pub mod style;

mod call;
mod json_scan;
mod unwrap;

#[cfg(target_family = "wasm")]
mod guest;
