//! The fields of a beam search, which OpenAI does not have: `beam_size`, and vLLM's `use_beam_search`
//! with the terms that it shares with `transformers`.

use mortise_http::Problem as ApiError;
use mortise_service::{BeamFields, EarlyStopping, RequestFields};
use serde_json::Value;

use super::fields::{Fields, wrong_type};

/// The fields of this module, for the nearest-name hint.
pub(super) const BEAM_FIELDS: [&str; 4] = [
    "beam_size",
    "use_beam_search",
    "length_penalty",
    "early_stopping",
];

/// Take the search, after `n` and `best_of` have been taken. Without `beam_size`, vLLM's callers mean
/// as many beams as choices.
pub(super) fn take_beams(fields: &mut Fields, request: &mut RequestFields) -> Result<(), ApiError> {
    let size = fields.count("beam_size")?;
    let wanted = fields.boolean("use_beam_search")?;
    let length_penalty = fields.number("length_penalty")?;
    let early_stopping = take_early_stopping(fields)?;
    let size = match (wanted, size) {
        (Some(false), Some(size @ 2..)) => {
            return Err(ApiError::invalid(
                "beam_size",
                format!("`beam_size` is {size} and `use_beam_search` is false; give one of them"),
            ));
        }
        (Some(true), size) => size
            .or_else(|| request.best_of.take())
            .or(request.n)
            .unwrap_or(1),
        // One beam is no search.
        (_, Some(size)) if size != 1 => size,
        _ => {
            let needless = match (length_penalty, early_stopping) {
                (Some(_), _) => "length_penalty",
                (None, Some(_)) => "early_stopping",
                (None, None) => return Ok(()),
            };
            return Err(ApiError::invalid(
                needless,
                format!("`{needless}` needs a beam search: give `beam_size` as well"),
            ));
        }
    };
    request.beams = Some(BeamFields {
        size,
        length_penalty: length_penalty.unwrap_or(1.0),
        early_stopping: early_stopping.unwrap_or_default(),
    });
    Ok(())
}

/// True, false or `"never"`.
fn take_early_stopping(fields: &mut Fields) -> Result<Option<EarlyStopping>, ApiError> {
    match fields.take("early_stopping") {
        None => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(EarlyStopping::Full)),
        Some(Value::Bool(false)) => Ok(Some(EarlyStopping::Unlikely)),
        Some(Value::String(word)) if word == "never" => Ok(Some(EarlyStopping::Never)),
        Some(other) => Err(wrong_type("early_stopping", "a boolean or `never`", &other)),
    }
}
