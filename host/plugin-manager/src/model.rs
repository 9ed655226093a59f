//! Models as plugins see them: the key that bindings choose them by, and the facts that plugins are told.

use std::sync::Arc;

use mortise_models::{Generator, Model};
use mortise_plugin::{ModelDescription, Vocabulary};
use mortise_service::{assumed_format, describe_model, vocabulary};
use mortise_tokenizer::Tokenizer;

/// Key of a model, by which bindings choose it.
#[derive(Debug, Clone, Copy)]
pub struct ModelKey<'a> {
    /// The public name.
    pub name: &'a str,
    /// Architecture, as [`mortise_plugin::ModelDescription::architecture`]; empty if the model's files do not tell.
    pub architecture: &'a str,
}

/// Facts of a model that plugins are told.
#[derive(Debug, Clone)]
pub struct ModelFacts {
    /// Names, control tokens and the chat template.
    pub description: Arc<ModelDescription>,
    /// Every token, for grammars.
    pub vocabulary: Arc<Vocabulary>,
    /// Chat templates of the model's files, by name.
    pub templates: Arc<[(String, String)]>,
}

impl ModelFacts {
    /// The facts of a loaded model; `None` for one that is rendered elsewhere or generates no text, to which no
    /// plugins are bound.
    pub fn of_model(model: &Model) -> Option<Self> {
        let (tokenizer, eos, logits) = match model.generator.as_ref()? {
            Generator::Tokens(tokens) => (
                &tokens.tokenizer,
                &tokens.generation.eos_tokens,
                tokens.vocabulary_size,
            ),
            Generator::Rendered(rendered) => (
                &rendered.tokenizer,
                &rendered.eos_tokens,
                rendered.vocabulary_size,
            ),
            Generator::Conversation(_) => return None,
        };
        if let Some(format) = assumed_format(tokenizer, &model.architecture) {
            tracing::info!(
                model = model.name,
                architecture = model.architecture,
                format,
                "the model's files have no chat template; one is told by its control tokens"
            );
        }
        Some(Self::of(
            &model.name,
            &model.architecture,
            tokenizer,
            eos,
            logits,
        ))
    }

    /// The facts of a model with this tokenizer; `eos` ends its sequences, and it has so many logits.
    pub fn of(
        name: &str,
        architecture: &str,
        tokenizer: &Tokenizer,
        eos: &[u32],
        logits: usize,
    ) -> Self {
        Self {
            description: Arc::new(describe_model(tokenizer, name, architecture)),
            vocabulary: Arc::new(vocabulary(tokenizer, eos, logits)),
            templates: tokenizer.chat_templates().into(),
        }
    }

    /// Chat template of the model's files by its name there.
    pub(crate) fn template(&self, name: &str) -> Option<&str> {
        let found = self.templates.iter().find(|(known, _)| known == name);
        found.map(|(_, source)| source.as_str())
    }

    /// The public name.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Key of the model, by which bindings choose it.
    pub fn key(&self) -> ModelKey<'_> {
        ModelKey {
            name: &self.description.name,
            architecture: &self.description.architecture,
        }
    }
}
