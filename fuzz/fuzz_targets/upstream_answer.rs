//! The streamed answer of an upstream server: the first byte is the size of the pieces that it comes in.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(upstream_answer);
