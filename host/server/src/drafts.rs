//! Models that guess what other models say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use mortise_model::Model;
use mortise_tokenizer::Tokenizer;

use crate::app::precision;
use crate::assembly::ModelText;
use crate::config::{ModelConfig, hub_config};

/// Weights by the names of their models, so that a model that is served and guesses for another is
/// loaded once.
#[derive(Debug, Default)]
pub(crate) struct LoadedWeights(Mutex<BTreeMap<String, Arc<Model>>>);

impl LoadedWeights {
    /// A model's weights, loaded if they are not yet. Blocks.
    pub(crate) fn of(
        &self,
        config: &ModelConfig,
        text: &ModelText,
        max_context: usize,
    ) -> anyhow::Result<Arc<Model>> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = loaded.get(&config.name) {
            return Ok(Arc::clone(model));
        }
        let mut model = Model::load(&text.folder, precision(config.quantize))?;
        model.limit_context(max_context);
        let model = Arc::new(model);
        loaded.insert(config.name.clone(), Arc::clone(&model));
        Ok(model)
    }

    /// The model that guesses for one with the tokenizer `large`. Blocks.
    pub(crate) fn draft(
        &self,
        config: &ModelConfig,
        large: &Tokenizer,
        max_context: usize,
    ) -> anyhow::Result<Arc<Model>> {
        let opened = || -> anyhow::Result<_> {
            let mut config = config.clone();
            if let Some(reference) = &config.hf {
                config.path = Some(crate::hub::fetch(&hub_config()?, reference)?);
            }
            let text = ModelText::open(&config)?;
            check_tokens(large, &text.tokenizer)?;
            self.of(&config, &text, max_context)
        };
        opened().with_context(|| format!("`{}` cannot be its draft model", config.name))
    }
}

/// Guesses are token ids: they mean something only if both models mean the same by them.
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
