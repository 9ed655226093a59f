//! Every value that a guest returns: guests of all kinds answer with these bytes.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(plugin_answer);
