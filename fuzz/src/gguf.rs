//! A GGUF file, from its header to the logits of a token.

use crate::{files, load};
use mortise_model::ModelFolder;

/// Run on one input.
pub fn run(data: &[u8]) {
    let folder = files::with(&[("model.gguf", data)]);
    if let Ok(folder) = ModelFolder::open(folder.join("model.gguf")) {
        load::run(&folder);
    }
}
