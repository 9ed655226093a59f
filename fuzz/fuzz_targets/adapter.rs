//! An adapter for a small model: its configuration, a zero byte, and its matrices.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(adapter);
