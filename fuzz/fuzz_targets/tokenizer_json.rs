//! A tokenizer: from its file to the tokens of a text and back.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(tokenizer_json);
