//! Models that child processes answer for: any command that serves an OpenAI-compatible API.
//!
//! Between this server and each command stands a *guard*, this same program under a hidden subcommand. It has the
//! command as its child, learns of the end of this server by the end of its standard input, and leaves nothing
//! behind: neither the command nor what the command has started.

mod arguments;
mod guard;
pub mod limits;
mod output;
mod ports;
mod process;
mod runtime;

pub use arguments::BadCommand;
pub use guard::{run_guard, run_guarded};
pub use runtime::{ChildError, ChildRuntime, Children};
