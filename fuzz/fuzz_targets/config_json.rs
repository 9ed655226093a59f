//! The configuration of a model: what it says of the shape, without weights.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(config_json);
