//! A plugin file: loaded, and bound as every kind that it says it is.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(plugin_component);
