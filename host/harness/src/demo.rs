//! The model whose text plugins are tried with.

use std::path::Path;

use mortise_models::{ModelConfig, ModelFiles, ModelSource};

/// The files of a model but its weights; without a path, those of the embedded demo model. Blocks.
///
/// # Errors
/// When there is no model, or its tokenizer cannot be read.
pub fn model_files(path: Option<&Path>) -> anyhow::Result<ModelFiles> {
    let source = ModelSource::local(mortise_bundle::demo_model());
    source.open(&ModelConfig::of_path(path.map(Path::to_owned)))
}
