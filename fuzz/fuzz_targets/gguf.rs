//! A GGUF file, from its header to the logits of a token.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(gguf);
