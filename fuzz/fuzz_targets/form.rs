//! A form with files: the first byte is the size of the pieces that it comes in, which makes no difference.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(form);
