//! Bounds of child processes. `docs/limits.md` lists all bounds of the project.

use std::time::Duration;

/// Ports that are tried for one process, from its `base_port`.
pub const MAX_PORTS_TRIED: u16 = 1000;
/// Lines of a process's output that reach the log in a second; further ones are counted.
pub const MAX_LOGGED_LINES_PER_SECOND: u32 = 50;
/// Lines of a process's output that an error quotes.
pub const MAX_QUOTED_LINES: usize = 5;
/// Characters of each of these lines.
pub const MAX_QUOTED_CHARS: usize = 300;
/// Longest time in which what a command has left behind is ended.
pub const MAX_SWEEP_TIME: Duration = Duration::from_secs(5);
