//! The configuration file of a server, as `mortise config check` reads it.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(config_toml);
