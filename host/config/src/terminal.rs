//! Environment variables about the terminal and about the user's own folders.

use std::env::{var, var_os};
use std::path::PathBuf;

/// Settings of commands that talk to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalConfig {
    /// Colours are welcome: there is no `NO_COLOR`, and the terminal is not a dumb one.
    pub colours: bool,
    /// Folder of what the program remembers for the user: `XDG_STATE_HOME`, or the place in the home folder that
    /// stands for it.
    pub state: Option<PathBuf>,
}

/// The settings of this process.
pub fn terminal() -> TerminalConfig {
    let refused = var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = var("TERM").is_ok_and(|name| name == "dumb");
    let folder = |name: &str| {
        var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state =
        folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    TerminalConfig {
        colours: !refused && !dumb,
        state: state.map(|state| state.join("mortise")),
    }
}
