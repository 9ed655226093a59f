//! Takes fields out of a request's JSON object one by one, so that every complaint names its field
//! with the path, and what nobody took is unknown.

use mortise_http::{Problem as ApiError, kind_of, nearest};
use mortise_service::RequestFields;
use serde_json::{Map, Value};

use crate::unsupported::Unsupported;

/// The fields of one object that nobody has taken yet.
pub(crate) struct Fields {
    object: Map<String, Value>,
    path: String,
    mode: Unsupported,
    /// Fields that were left out of account, in `Ignore` mode.
    ignored: Vec<String>,
}

impl Fields {
    /// The top level of a request.
    pub(crate) fn new(object: Map<String, Value>, mode: Unsupported) -> Self {
        Self {
            object,
            path: String::new(),
            mode,
            ignored: Vec::new(),
        }
    }

    /// An object inside this one; a value of another type is refused.
    pub(crate) fn nested(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        self.child(name, value).map(Some)
    }

    /// `value`, found at `name`, as an object whose complaints begin with our path.
    pub(crate) fn child(&self, name: &str, value: Value) -> Result<Self, ApiError> {
        let path = self.path_of(name);
        match value {
            Value::Object(object) => Ok(Self {
                object,
                path,
                mode: self.mode,
                ignored: Vec::new(),
            }),
            other => Err(wrong_type(&path, "an object", &other)),
        }
    }

    /// The path of a field of this object, as messages name it.
    pub(crate) fn path_of(&self, name: &str) -> String {
        match (self.path.is_empty(), name.starts_with('[')) {
            (true, _) => name.to_owned(),
            (false, true) => format!("{}{name}", self.path),
            (false, false) => format!("{}.{name}", self.path),
        }
    }

    /// The field's value; null counts as absent, as it does at OpenAI.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        // The order of what is left does not matter, so the cheap removal will do.
        self.object
            .swap_remove(name)
            .filter(|value| !value.is_null())
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.path_of(name), "a string", &other)),
        }
    }

    pub(crate) fn required_string(&mut self, name: &str) -> Result<String, ApiError> {
        self.string(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(&self.path_of(name), "a boolean", &other)),
        }
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(wrong_type(&self.path_of(name), "a number", &value)),
        }
    }

    /// An integer of at least 0.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u32>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let path = self.path_of(name);
        if !value.is_number() {
            return Err(wrong_type(&path, "an integer", &value));
        }
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(ApiError::invalid(
                path.as_str(),
                format!(
                    "`{path}` must be an integer from 0 to {}; it is {value}",
                    u32::MAX
                ),
            )),
        }
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let path = self.path_of(name);
        match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None if value.is_number() => Err(ApiError::invalid(
                path.as_str(),
                format!("`{path}` must be a 64-bit integer; it is {value}"),
            )),
            None => Err(wrong_type(&path, "an integer", &value)),
        }
    }

    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong_type(&self.path_of(name), "an array", &other)),
        }
    }

    /// A string or an array of strings; none if the field is absent.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        Ok(self.optional_strings(name)?.unwrap_or_default())
    }

    /// A string or an array of strings, where an empty one is not the same as none.
    pub(crate) fn optional_strings(&mut self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        let path = self.path_of(name);
        let strings = match self.take(name) {
            None => return Ok(None),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(Value::Array(items)) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Value::String(text) => Ok(text),
                    other => Err(wrong_type(&format!("{path}[{index}]"), "a string", &other)),
                })
                .collect(),
            Some(other) => Err(wrong_type(&path, "a string or an array of strings", &other)),
        };
        strings.map(Some)
    }

    /// One of a few words.
    pub(crate) fn choice(
        &mut self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, ApiError> {
        let Some(text) = self.string(name)? else {
            return Ok(None);
        };
        let path = self.path_of(name);
        match words.iter().find(|word| **word == text) {
            Some(word) => Ok(Some(word)),
            None => Err(ApiError::invalid(
                path.as_str(),
                format!("`{path}` must be one of {}; it is `{text}`", quoted(words)),
            )),
        }
    }

    /// Refuse what mortise cannot honour, or note that it is left out, as configured.
    pub(crate) fn unsupported(&mut self, name: &str, why: &str) -> Result<(), ApiError> {
        let path = self.path_of(name);
        match self.mode {
            Unsupported::Refuse => Err(ApiError::unsupported(
                path.as_str(),
                format!("`{path}` is not supported: {why}"),
            )),
            Unsupported::Ignore => {
                self.ignored.push(path);
                Ok(())
            }
        }
    }

    /// A required field is absent.
    pub(crate) fn missing(&self, name: &str) -> ApiError {
        let path = self.path_of(name);
        let mut error = ApiError::invalid(path.as_str(), format!("`{path}` is required"));
        error.code = "missing_required_parameter".to_owned();
        error
    }

    /// Refuse whatever nobody took. `known` are the names that could have stood here.
    /// Returns the fields that were left out of account.
    pub(crate) fn finish(mut self, known: &[&str]) -> Result<Vec<String>, ApiError> {
        let leftover: Vec<String> = self
            .object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| name.clone())
            .collect();
        for name in leftover {
            let hint = match nearest(&name, known.iter().copied()) {
                Some(candidate) => format!("; did you mean `{}`?", self.path_of(candidate)),
                None => String::new(),
            };
            match self.mode {
                Unsupported::Ignore => self.ignored.push(self.path_of(&name)),
                Unsupported::Refuse => {
                    let path = self.path_of(&name);
                    let mut error =
                        ApiError::invalid(path.as_str(), format!("unknown field `{path}`{hint}"));
                    error.code = "unknown_parameter".to_owned();
                    return Err(error);
                }
            }
        }
        Ok(self.ignored)
    }

    /// Add what a nested object left out of account.
    pub(crate) fn also_ignored(&mut self, more: Vec<String>) {
        self.ignored.extend(more);
    }
}

/// The fields that chat and text completions share, except those that shape the prompt.
pub(crate) fn take_sampling(fields: &mut Fields, into: &mut RequestFields) -> Result<(), ApiError> {
    into.temperature = fields.number("temperature")?;
    into.top_p = fields.number("top_p")?;
    into.top_k = take_top_k(fields)?;
    into.min_p = fields.number("min_p")?;
    into.n = fields.count("n")?;
    into.seed = fields.integer("seed")?;
    into.repetition_penalty = fields.number("repetition_penalty")?;
    into.frequency_penalty = fields.number("frequency_penalty")?;
    into.presence_penalty = fields.number("presence_penalty")?;
    into.stop = fields.strings("stop")?;
    into.logit_bias = take_logit_bias(fields)?;
    into.fairness_key = fields.string("fairness_key")?;
    Ok(())
}

/// Off is 0 here and -1 in vLLM; both are taken.
fn take_top_k(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    match fields.integer("top_k")? {
        None => Ok(None),
        Some(-1) => Ok(Some(0)),
        Some(k) => u32::try_from(k).map(Some).map_err(|_| {
            ApiError::invalid(
                "top_k",
                format!("`top_k` must be -1 or 0 (off), or a number of tokens; it is {k}"),
            )
        }),
    }
}

fn take_logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f64)>, ApiError> {
    let Some(value) = fields.take("logit_bias") else {
        return Ok(Vec::new());
    };
    let Value::Object(object) = value else {
        return Err(wrong_type("logit_bias", "an object", &value));
    };
    let mut biases = Vec::with_capacity(object.len());
    for (key, value) in object {
        let path = format!("logit_bias.{key}");
        let Some(bias) = value.as_f64() else {
            return Err(wrong_type(&path, "a number", &value));
        };
        match key.parse::<u32>() {
            Ok(id) => biases.push((id, bias)),
            Err(_) => fields.unsupported(&path, "the key must be a token id, an integer")?,
        }
    }
    Ok(biases)
}

/// Zero asks for nothing. It is refused by name, or left out of account where that is configured.
pub(crate) fn take_positive(fields: &mut Fields, name: &str) -> Result<Option<u32>, ApiError> {
    match fields.count(name)? {
        Some(0) => {
            fields.unsupported(name, "it must be at least 1")?;
            Ok(None)
        }
        other => Ok(other),
    }
}

/// `stream_options`: whether a last chunk reports usage, and whether chunks are padded.
pub(crate) fn take_stream_options(fields: &mut Fields) -> Result<(bool, bool), ApiError> {
    let Some(mut options) = fields.nested("stream_options")? else {
        return Ok((false, false));
    };
    let usage = options.boolean("include_usage")?.unwrap_or(false);
    let obfuscation = options.boolean("include_obfuscation")?.unwrap_or(false);
    let ignored = options.finish(&["include_usage", "include_obfuscation"])?;
    fields.also_ignored(ignored);
    Ok((usage, obfuscation))
}

pub(crate) fn wrong_type(path: &str, expected: &str, found: &Value) -> ApiError {
    let mut error = ApiError::invalid(
        path,
        format!("`{path}` must be {expected}; it is {}", kind_of(found)),
    );
    error.code = "invalid_type".to_owned();
    error
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}
