//! Loaded weights, shared between served models and draft models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use mortise_model::Model;
use mortise_tokenizer::Tokenizer;

use crate::config::ModelConfig;
use crate::files::{ModelFiles, ModelSource};

/// Weights by model name. A model that is served and is the draft model of another is loaded once.
#[derive(Debug, Default)]
pub struct LoadedWeights(Mutex<BTreeMap<String, Arc<Model>>>);

impl LoadedWeights {
    /// A model's weights, loaded if they are not yet. Blocks.
    pub fn of(
        &self,
        config: &ModelConfig,
        text: &ModelFiles,
        max_context: usize,
    ) -> anyhow::Result<Arc<Model>> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = loaded.get(&config.name) {
            return Ok(Arc::clone(model));
        }
        let mut model = Model::load(&text.folder, config.precision())?;
        model.limit_context(max_context);
        let model = Arc::new(model);
        loaded.insert(config.name.clone(), Arc::clone(&model));
        Ok(model)
    }

    /// Draft model of a model with the tokenizer `large`. Blocks.
    pub fn draft(
        &self,
        config: &ModelConfig,
        source: &ModelSource,
        large: &Tokenizer,
        max_context: usize,
    ) -> anyhow::Result<Arc<Model>> {
        let opened = || -> anyhow::Result<_> {
            let files = source.open(config)?;
            check_tokens(large, &files.tokenizer)?;
            self.of(config, &files, max_context)
        };
        opened().with_context(|| format!("`{}` cannot be its draft model", config.name))
    }
}

/// Check that both tokenizers have the same tokens: draft tokens are verified by their ids.
fn check_tokens(large: &Tokenizer, draft: &Tokenizer) -> anyhow::Result<()> {
    let (known, of_draft) = (large.vocabulary_size(), draft.vocabulary_size());
    let shown = |tokenizer: &Tokenizer, id| {
        let bytes = tokenizer.table().bytes(id);
        String::from_utf8_lossy(bytes).into_owned()
    };
    let differs = |id: &u32| large.table().bytes(*id) != draft.table().bytes(*id);
    if let Some(id) = (0..known.min(of_draft) as u32).find(differs) {
        bail!(
            "their vocabularies differ: token {id} is {:?} here and {:?} there; a draft model needs \
             the same tokenizer",
            shown(large, id),
            shown(draft, id)
        );
    }
    if known != of_draft {
        bail!(
            "their vocabularies differ: {known} tokens here and {of_draft} there; a draft model needs \
             the same tokenizer"
        );
    }
    Ok(())
}
