//! Golden cases: a byte that names a kind, and the file. They are run with the embedded plugin of that

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(golden_cases);
