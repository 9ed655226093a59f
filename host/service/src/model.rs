//! One model with everything that serves it.

use std::sync::Arc;

use mortise_models::{EmbeddingRuntime, GenerationConfig, Named, TokenRuntime};
use mortise_tokenizer::Tokenizer;

use crate::plugin_routing::ModelPlugins;

/// A model as the service serves it.
#[derive(Clone)]
pub struct ServedModel {
    /// The public name.
    pub name: String,
    /// Further names that mean this model.
    pub aliases: Vec<String>,
    /// When it was made or loaded, in seconds since 1970.
    pub created: u64,
    /// Who it belongs to, for model lists.
    pub owned_by: String,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Render conversations, parse answers, compile grammars.
    pub plugins: ModelPlugins,
    /// Bits in a mask: the size of the vocabulary that grammar plugins were given.
    pub mask_tokens: usize,
    /// Generates tokens.
    pub backend: Arc<dyn TokenRuntime>,
    /// Makes vectors of texts, if the model can.
    pub embedder: Option<Arc<dyn EmbeddingRuntime>>,
    /// Sampling settings and end tokens where the request names none.
    pub defaults: GenerationConfig,
}

impl Named for ServedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }
}

impl ServedModel {
    /// The model, served by these plugins.
    pub fn with_plugins(self, plugins: ModelPlugins) -> Self {
        Self { plugins, ..self }
    }
}
