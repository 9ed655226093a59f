//! A folder in the Hugging Face layout, from its configuration to the logits of a token.

use crate::{files, load};
use mortise_model::ModelFolder;

/// Run on one input.
pub fn run(data: &[u8]) {
    // JSON has no zero bytes.
    let Some(end) = data.iter().position(|byte| *byte == 0) else {
        return;
    };
    let folder = files::with(&[
        ("config.json", &data[..end]),
        ("model.safetensors", &data[end + 1..]),
    ]);
    load::run(&ModelFolder::open(folder).expect("open the folder"));
}
