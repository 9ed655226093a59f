//! Generation settings that a model's files recommend.

use serde_json::Value;

use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::{CONFIG_FILE, GENERATION_FILE, ModelFolder};
use crate::limits::EOS_TOKENS_MAX;

/// Fields with end-of-sequence tokens. GGUF metadata also names the ends of a turn and of a message.
const EOS_FIELD: &str = "eos_token_id";
const GGUF_EOS_FIELDS: [&str; 3] = [EOS_FIELD, "eot_token_id", "eom_token_id"];

/// Generation settings of a model: `generation_config.json`, or `config.json` where that file is
/// absent, or the metadata of a GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationConfig {
    /// Tokens that end a sequence.
    pub eos_tokens: Vec<u32>,
    /// Temperature; 0 where the files say not to sample.
    pub temperature: Option<f64>,
    /// Cumulative probability of the candidates.
    pub top_p: Option<f64>,
    /// Number of candidates; 0 is off.
    pub top_k: Option<u32>,
    /// Least probability of a candidate, relative to the most likely one.
    pub min_p: Option<f64>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f64>,
    /// Most tokens to generate.
    pub max_tokens: Option<u32>,
}

impl GenerationConfig {
    /// Read and check the settings of a model whose token ids are below `vocabulary`.
    ///
    /// As in transformers, `config.json` (and its `text_config`) counts only where
    /// `generation_config.json` is absent. Its end tokens also count where the other file has none.
    pub fn read(folder: &ModelFolder, vocabulary: usize) -> Result<Self, ModelError> {
        let generation = ObjectFields::read(folder, GENERATION_FILE)?;
        let (eos_fields, fallback): (&[&str], _) = match folder.gguf() {
            Some(_) => (&GGUF_EOS_FIELDS, Vec::new()),
            None => (&[EOS_FIELD], config_objects(folder)?),
        };
        let mut eos_tokens = Vec::new();
        for fields in generation.iter().chain(&fallback) {
            if eos_tokens.is_empty() {
                eos_tokens = read_eos(fields, eos_fields, vocabulary)?;
            }
        }
        let settings = Settings(match &generation {
            Some(generation) => std::slice::from_ref(generation),
            None => &fallback,
        });
        let greedy = settings.find(|fields| fields.flag("do_sample"))? == Some(false);
        let temperature = settings.number("temperature", 0.0, 100.0)?;
        Ok(Self {
            eos_tokens,
            temperature: if greedy { Some(0.0) } else { temperature },
            top_p: settings.number("top_p", 0.0, 1.0)?,
            top_k: settings.count("top_k", 0)?,
            min_p: settings.number("min_p", 0.0, 1.0)?,
            repetition_penalty: settings.number("repetition_penalty", 1e-3, 100.0)?,
            max_tokens: settings.count("max_new_tokens", 1)?,
        })
    }

    /// Add tokens that end a sequence, such as the tokenizer's own.
    pub fn with_eos_tokens(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.eos_tokens.extend(ids);
        self.eos_tokens.sort_unstable();
        self.eos_tokens.dedup();
        self
    }
}

/// The object of `config.json` and, in models of several parts, that of the text decoder.
fn config_objects(folder: &ModelFolder) -> Result<Vec<ObjectFields>, ModelError> {
    let Some(config) = ObjectFields::read(folder, CONFIG_FILE)? else {
        return Ok(Vec::new());
    };
    let text = config.object("text_config")?;
    Ok(std::iter::once(config).chain(text).collect())
}

/// Objects that may have a setting; the first that has it counts.
struct Settings<'a>(&'a [ObjectFields]);

impl Settings<'_> {
    fn find<T>(
        &self,
        read: impl Fn(&ObjectFields) -> Result<Option<T>, ModelError>,
    ) -> Result<Option<T>, ModelError> {
        for fields in self.0 {
            if let Some(found) = read(fields)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn number(&self, field: &str, least: f64, most: f64) -> Result<Option<f64>, ModelError> {
        self.find(|fields| fields.number(field, least..=most))
    }

    fn count(&self, field: &str, least: usize) -> Result<Option<u32>, ModelError> {
        let count = self.find(|fields| fields.count(field, least..=u32::MAX as usize))?;
        Ok(count.and_then(|count| u32::try_from(count).ok()))
    }
}

/// Read the tokens of fields that hold one id or a list of ids.
fn read_eos(
    fields: &ObjectFields,
    names: &[&str],
    vocabulary: usize,
) -> Result<Vec<u32>, ModelError> {
    let mut tokens = Vec::new();
    for name in names {
        match fields.get(name) {
            None => {}
            Some(Value::Array(list)) if list.len() > EOS_TOKENS_MAX => {
                let problem = format!(
                    "has {} entries; at most {EOS_TOKENS_MAX} are read",
                    list.len()
                );
                return Err(fields.wrong(name, problem));
            }
            Some(Value::Array(list)) => {
                for id in list {
                    tokens.push(token(fields, name, id, vocabulary)?);
                }
            }
            Some(id) => tokens.push(token(fields, name, id, vocabulary)?),
        }
    }
    Ok(tokens)
}

/// A token id of the model.
fn token(
    fields: &ObjectFields,
    name: &str,
    id: &Value,
    vocabulary: usize,
) -> Result<u32, ModelError> {
    let token = id.as_u64().filter(|id| *id < vocabulary as u64);
    let token = token.and_then(|token| u32::try_from(token).ok());
    token.ok_or_else(|| {
        let problem = format!(
            "names token {}; the model has tokens 0 to {}",
            brief(id),
            vocabulary.saturating_sub(1)
        );
        fields.wrong(name, problem)
    })
}
