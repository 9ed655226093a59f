//! A filter of a search in a vector store, a zero byte, and the attributes of a file.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(vector_filter);
