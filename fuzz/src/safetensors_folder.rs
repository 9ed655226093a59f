//! A folder in the Hugging Face layout, from its configuration to the logits of a token.

use crate::{files, load};
use mortise_model::ModelFolder;

/// Run on one input.
pub fn run(data: &[u8]) {
    let Some((config, weights)) = files::parts(data) else {
        return;
    };
    let folder = files::with(&[
        ("config.json", config),
        ("model.safetensors", weights),
    ]);
    load::run(&ModelFolder::open(folder).expect("open the folder"));
}
