//! A folder in the Hugging Face layout, from its configuration to the logits of a token.

#![no_main]

mod load;

use libfuzzer_sys::fuzz_target;
use mortise_model::ModelFolder;

fuzz_target!(|data: &[u8]| {
    // JSON has no zero bytes.
    let Some(end) = data.iter().position(|byte| *byte == 0) else {
        return;
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("write a file");
    };
    write("config.json", &data[..end]);
    write("model.safetensors", &data[end + 1..]);
    load::run(&ModelFolder::open(folder.path()).expect("open the folder"));
});
