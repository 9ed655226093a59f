//! An uploaded document, to its text and its chunks: the first byte is the size of chunks and, by its last bit, the name.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(document);
