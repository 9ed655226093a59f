//! The configuration file of a server, as `mortise config check` reads it.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mortise_config::{Config, Overrides};

fuzz_target!(|text: &str| {
    let path = Path::new("/nowhere/mortise.toml");
    if let Err(problem) = Config::of_text(text, path, Overrides::default()) {
        assert!(!problem.to_string().trim().is_empty(), "an error says what is wrong");
    }
});
