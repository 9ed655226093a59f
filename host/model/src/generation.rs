//! What a model's files recommend for generation.

use serde_json::Value;

use crate::error::ModelError;
use crate::fields::{Fields, brief};
use crate::folder::ModelFolder;
use crate::spec::CONFIG_FILE;

const GENERATION_FILE: &str = "generation_config.json";
const EOS_TOKENS_MAX: usize = 256;

/// Recommendations of `generation_config.json`; end tokens also from `config.json`.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationDefaults {
    /// Tokens that end a text.
    pub eos_tokens: Vec<u32>,
    /// Temperature; 0 where the files say not to sample.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// Candidates; 0 is off.
    pub top_k: Option<u32>,
    /// Smallest relative probability.
    pub min_p: Option<f32>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// Read and check both files. `generation_config.json` may be absent.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            Fields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        let model_eos = read_eos(&config)?.unwrap_or_default();
        let Some(generation) = Fields::read(folder, GENERATION_FILE)? else {
            return Ok(Self {
                eos_tokens: model_eos,
                ..Self::default()
            });
        };
        let number = |field, bounds| {
            let number = generation.number(field, bounds)?;
            Ok::<_, ModelError>(number.map(|number| number as f32))
        };
        let sampled = generation.flag("do_sample")?.unwrap_or(true);
        let temperature = number("temperature", 0.0..=100.0)?;
        let top_k = generation.count("top_k", 0..=u32::MAX as usize)?;
        Ok(Self {
            eos_tokens: read_eos(&generation)?.unwrap_or(model_eos),
            temperature: if sampled { temperature } else { Some(0.0) },
            top_p: number("top_p", 0.0..=1.0)?,
            top_k: top_k.and_then(|top_k| u32::try_from(top_k).ok()),
            min_p: number("min_p", 0.0..=1.0)?,
            repetition_penalty: number("repetition_penalty", 1e-3..=100.0)?,
        })
    }
}

/// One token or a list of them.
fn read_eos(fields: &Fields) -> Result<Option<Vec<u32>>, ModelError> {
    const FIELD: &str = "eos_token_id";
    let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
    let Some(value) = fields.get(FIELD) else {
        return Ok(None);
    };
    let tokens = match value {
        Value::Array(list) if list.len() <= EOS_TOKENS_MAX => list.iter().map(token).collect(),
        single => token(single).map(|token| vec![token]),
    };
    tokens.map(Some).ok_or_else(|| {
        let problem = format!(
            "is {}; expected a token id or a list of at most {EOS_TOKENS_MAX} of them",
            brief(value)
        );
        fields.wrong(FIELD, problem)
    })
}
