//! A folder in the Hugging Face layout, from its configuration to the logits of a token.

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(safetensors_folder);
