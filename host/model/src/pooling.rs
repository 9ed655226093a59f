//! Pooling: from the rows of a text to one vector.

use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::limits::MODULES_MAX;
use crate::text_step;

/// List of modules of sentence-transformers.
const MODULES_FILE: &str = "modules.json";
const POOLING_FILE: &str = "1_Pooling/config.json";

/// Pooling of the rows of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first.
    First,
    /// The last.
    Last,
}

/// From rows to a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolingSpec {
    /// Rows that are pooled.
    pub pooling: Pooling,
    /// Whether the vector gets length 1.
    pub normalised: bool,
}

impl PoolingSpec {
    /// Read the pooling of a model; `None` if its files name none. Vectors are normalised unless
    /// `modules.json` is there without a `Normalize` module. Steps that are not computed here are refused.
    pub fn read(folder: &ModelFolder) -> Result<Option<Self>, ModelError> {
        if folder.gguf().is_some() {
            let pooling = ObjectFields::read(folder, CONFIG_FILE)?
                .map(|config| read_number(&config))
                .transpose()?;
            return Ok(pooling.flatten().map(|pooling| Self {
                pooling,
                normalised: true,
            }));
        }
        text_step::check(folder)?;
        let normalised = match ObjectFields::read_list(folder, MODULES_FILE, MODULES_MAX)? {
            None => true,
            Some(modules) => check_modules(&modules)?,
        };
        let pooling = ObjectFields::read(folder, POOLING_FILE)?
            .map(|config| read_modes(&config))
            .transpose()?;
        Ok(pooling.map(|pooling| Self {
            pooling,
            normalised,
        }))
    }

    /// The vector of a text from its rows; there is at least one.
    pub(crate) fn apply(self, rows: &[&[f32]]) -> Vec<f32> {
        let vector = pool(rows, self.pooling);
        if self.normalised {
            unit(vector)
        } else {
            vector
        }
    }
}

/// Field of a GGUF file.
const NUMBER: &str = "pooling_type";
/// Its value where a head makes a score of a row.
const BY_HEAD: usize = 4;

/// Whether a GGUF file's rows are not pooled but scored by a head.
pub(crate) fn pools_by_head(config: &ObjectFields) -> Result<bool, ModelError> {
    Ok(config.count(NUMBER, 0..=BY_HEAD)? == Some(BY_HEAD))
}

/// A GGUF file says it by a number.
fn read_number(config: &ObjectFields) -> Result<Option<Pooling>, ModelError> {
    Ok(match config.count(NUMBER, 0..=BY_HEAD)? {
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::First),
        Some(3) => Some(Pooling::Last),
        _ => None,
    })
}

/// Whether the vectors are normalised. Steps that are not computed are refused.
fn check_modules(modules: &[ObjectFields]) -> Result<bool, ModelError> {
    let mut normalised = false;
    for module in modules {
        // `sentence_transformers.models.Pooling` and the like.
        let kind = module.text("type")?.unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Pooling" => {
                let path = module.text("path")?.unwrap_or_default();
                if Some(path) != POOLING_FILE.split('/').next() {
                    let shown = brief(&path.into());
                    return Err(module.wrong("path", format!("is {shown}; expected \"1_Pooling\"")));
                }
            }
            "Normalize" => normalised = true,
            _ => {
                let problem = format!(
                    "is {}; supported are Transformer, Pooling and Normalize",
                    brief(&kind.into())
                );
                return Err(module.wrong("type", problem));
            }
        }
    }
    Ok(normalised)
}

/// The one mode that is set: by its name, or by a flag of each mode.
fn read_modes(config: &ObjectFields) -> Result<Pooling, ModelError> {
    const MODE: &str = "pooling_mode";
    const PROMPT: &str = "include_prompt";
    if config.flag(PROMPT)? == Some(false) {
        let problem = "is false; the rows of a prompt are pooled with those of its text";
        return Err(config.wrong(PROMPT, problem));
    }
    let unsupported = "asks for a pooling that is not supported";
    if let Some(mode) = config.text(MODE)? {
        return match mode {
            "mean" => Ok(Pooling::Mean),
            "cls" => Ok(Pooling::First),
            "lasttoken" => Ok(Pooling::Last),
            _ => Err(config.wrong(MODE, unsupported)),
        };
    }
    let modes = [
        ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
        ("pooling_mode_cls_token", Some(Pooling::First)),
        ("pooling_mode_lasttoken", Some(Pooling::Last)),
        ("pooling_mode_max_tokens", None),
        ("pooling_mode_mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", None),
    ];
    let mut chosen = None;
    for (field, mode) in modes {
        if config.flag(field)? == Some(true) {
            let Some(mode) = mode.filter(|_| chosen.is_none()) else {
                return Err(config.wrong(field, unsupported));
            };
            chosen = Some(mode);
        }
    }
    chosen.ok_or_else(|| config.wrong("pooling_mode_mean_tokens", "and no other mode is set"))
}

/// The rows of one text as one vector; there is at least one row.
fn pool(rows: &[&[f32]], pooling: Pooling) -> Vec<f32> {
    match pooling {
        Pooling::First => rows.first().map(|row| row.to_vec()).unwrap_or_default(),
        Pooling::Last => rows.last().map(|row| row.to_vec()).unwrap_or_default(),
        Pooling::Mean => {
            let mut sum = rows.first().map(|row| row.to_vec()).unwrap_or_default();
            for row in rows.iter().skip(1) {
                add(&mut sum, row);
            }
            let count = rows.len().max(1) as f32;
            sum.iter_mut().for_each(|value| *value /= count);
            sum
        }
    }
}

/// The vector at length 1; one of zeros stays.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vector
}

fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}
