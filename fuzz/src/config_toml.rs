//! The configuration file of a server, as `mortise config check` reads it.

use std::path::Path;

use mortise_config::{Config, Overrides};

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let path = Path::new("/nowhere/mortise.toml");
    if let Err(problem) = Config::of_text(text, path, Overrides::default()) {
        assert!(!problem.to_string().trim().is_empty(), "an error says what is wrong");
    }
}
