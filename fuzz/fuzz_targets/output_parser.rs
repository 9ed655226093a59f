//! Answers: two bytes that name a format and what a request has, and what a model writes, as `tests/parsers/kept.rs` has it.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(output_parser);
