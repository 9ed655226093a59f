//! Loaded weights, shared between served models and draft models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context as _, bail};
use mortise_model::Decoder;
use mortise_tokenizer::Tokenizer;

use crate::config::{ModelConfig, Quantize};
use crate::files::{ModelFiles, ModelSource};

/// Weights by model name and precision. Replicas, and a model that is the draft model of another, share
/// them. They are freed with the last engine that uses them.
#[derive(Debug, Default)]
pub(crate) struct LoadedWeights(Mutex<BTreeMap<WeightKey, Arc<Place>>>);

/// Place of the weights under one key, locked while they are loaded: a load that hangs holds up none of others.
type Place = Mutex<Weak<Decoder>>;

/// Name, format that weights are quantised to, and bound of the context.
type WeightKey = (String, Option<Quantize>, usize);

impl LoadedWeights {
    /// A model's weights, loaded if they are not yet. Blocks.
    pub(crate) fn of(
        &self,
        config: &ModelConfig,
        text: &ModelFiles,
        max_context: usize,
    ) -> anyhow::Result<Arc<Decoder>> {
        let place = self.place((config.name.clone(), config.quantize, max_context));
        let mut weights = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = weights.upgrade() {
            return Ok(model);
        }
        let mut model = Decoder::load(&text.folder, config.precision())?;
        model.limit_context(max_context);
        let model = Arc::new(model);
        *weights = Arc::downgrade(&model);
        Ok(model)
    }

    fn place(&self, key: WeightKey) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is being loaded is locked.
        places.retain(|_, place| {
            place
                .try_lock()
                .map_or(true, |weights| weights.strong_count() > 0)
        });
        Arc::clone(places.entry(key).or_default())
    }

    /// Draft model of a model with the tokenizer `large`. Blocks.
    pub(crate) fn draft(
        &self,
        config: &ModelConfig,
        source: &ModelSource,
        large: &Tokenizer,
        max_context: usize,
    ) -> anyhow::Result<Arc<Decoder>> {
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
