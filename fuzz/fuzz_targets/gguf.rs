//! A GGUF file, from its header to the logits of a token.

#![no_main]

mod load;

use libfuzzer_sys::fuzz_target;
use mortise_model::ModelFolder;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, data).expect("write the file");
    if let Ok(folder) = ModelFolder::open(path) {
        load::run(&folder);
    }
});
