//! The configuration file of a server, as `mortise config check` reads it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(problem) = mortise::fuzzing::config(text) {
        assert!(!problem.trim().is_empty(), "an error says what is wrong");
    }
});
