//! Draft models for speculative decoding.

use std::path::Path;

use mortise_engine::Speculation;
use mortise_models::ModelConfig;

use super::models::check_model;
use super::raw::RawModel;
use super::{ConfigError, invalid};

/// Give each model its draft model, which is named or is at a path relative to `base`.
pub(super) fn assign(
    models: &mut [ModelConfig],
    drafts: &[Option<String>],
    base: &Path,
) -> Result<(), ConfigError> {
    let named: Vec<ModelConfig> = models.to_vec();
    for (index, (model, draft)) in models.iter_mut().zip(drafts).enumerate() {
        let Some(draft) = draft else { continue };
        let key = format!("models[{index}].draft_model");
        if model.script.is_some() {
            return Err(invalid(&key, "nobody guesses for a scripted model"));
        }
        let config = match named.iter().find(|named| named.name == *draft) {
            Some(named) if named.script.is_some() => {
                return Err(invalid(
                    &key,
                    format!("the scripted model `{draft}` cannot guess"),
                ));
            }
            Some(named) if named.upstream.is_some() || named.child.is_some() => {
                let problem =
                    format!("the model `{draft}` runs on another server and cannot guess");
                return Err(invalid(&key, problem));
            }
            Some(named) => named.clone(),
            None => {
                let raw = RawModel {
                    name: Some(draft.clone()),
                    path: Some(draft.into()),
                    ..RawModel::default()
                };
                check_model(index, raw, base)?
            }
        };
        model.draft = Some(Box::new(config));
    }
    Ok(())
}

/// Draft models and the way to guess go together.
pub(super) fn check(models: &[ModelConfig], speculation: Speculation) -> Result<(), ConfigError> {
    let wanted = matches!(speculation, Speculation::DraftModel { .. });
    match models.iter().position(|model| model.draft.is_some()) {
        Some(index) if !wanted => Err(invalid(
            &format!("models[{index}].draft_model"),
            "it guesses only with `speculation = \"draft-model\"` in [engine]",
        )),
        None if wanted => Err(invalid(
            "engine.speculation",
            "it is `draft-model`, and no model has a `draft_model`",
        )),
        _ => Ok(()),
    }
}
