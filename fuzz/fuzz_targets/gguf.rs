//! A GGUF file, from its header to the logits of a token.

#![no_main]

mod files;
mod load;

use libfuzzer_sys::fuzz_target;
use mortise_model::ModelFolder;

fuzz_target!(|data: &[u8]| {
    let folder = files::with(&[("model.gguf", data)]);
    if let Ok(folder) = ModelFolder::open(folder.join("model.gguf")) {
        load::run(&folder);
    }
});
