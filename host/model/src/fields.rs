//! Checked access to the fields of a JSON configuration file.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::gguf::{Gguf, config_fields, generation_fields, metadata_key};
use crate::limits::{CONFIG_BYTES_MAX, LIST_MAX};

/// The members of one JSON object, with the names that messages give them.
#[derive(Debug)]
pub(crate) struct ObjectFields {
    file: &'static str,
    /// Architecture of a GGUF file: its keys have other names in messages.
    architecture: Option<String>,
    prefix: String,
    members: Map<String, Value>,
}

impl ObjectFields {
    /// Read a configuration file; `None` if it is not there.
    pub(crate) fn read(
        folder: &ModelFolder,
        file: &'static str,
    ) -> Result<Option<Self>, ModelError> {
        if let Some(gguf) = folder.gguf() {
            return Self::of_gguf(folder, gguf, file).map(Some);
        }
        let Some(bytes) = folder.read_optional(file, CONFIG_BYTES_MAX)? else {
            return Ok(None);
        };
        let json = |source| ModelError::Json {
            file: file.to_owned(),
            source,
        };
        let members = serde_json::from_slice(&bytes).map_err(json)?;
        Ok(Some(Self {
            file,
            architecture: None,
            prefix: String::new(),
            members,
        }))
    }

    /// Read a file that holds a list of objects; `None` if it is not there.
    pub(crate) fn read_list(
        folder: &ModelFolder,
        file: &'static str,
        most: usize,
    ) -> Result<Option<Vec<Self>>, ModelError> {
        let Some(bytes) = folder.read_optional(file, CONFIG_BYTES_MAX)? else {
            return Ok(None);
        };
        let json = |source| ModelError::Json {
            file: file.to_owned(),
            source,
        };
        let list: Vec<Map<String, Value>> = serde_json::from_slice(&bytes).map_err(json)?;
        let entries = list.into_iter().enumerate().map(|(number, members)| Self {
            file,
            architecture: None,
            prefix: format!("{number}."),
            members,
        });
        match entries.len() {
            length if length <= most => Ok(Some(entries.collect())),
            length => Err(ModelError::Field {
                file: file.to_owned(),
                field: "length".to_owned(),
                problem: format!("is {length}; at most {most} entries are read"),
            }),
        }
    }

    /// The metadata of a GGUF file, with the fields of a configuration file.
    fn of_gguf(folder: &ModelFolder, gguf: &Gguf, file: &str) -> Result<Self, ModelError> {
        let members = if file == CONFIG_FILE {
            config_fields(gguf)
        } else {
            generation_fields(gguf)
        };
        let wrong = |source| ModelError::Gguf {
            file: folder.name(),
            source,
        };
        Ok(Self {
            file: "GGUF metadata",
            architecture: Some(gguf.architecture().map_err(wrong)?.to_owned()),
            prefix: String::new(),
            members: members.map_err(wrong)?,
        })
    }

    /// The error of a field.
    pub(crate) fn wrong(&self, field: &str, problem: impl Display) -> ModelError {
        ModelError::Field {
            file: self.file.to_owned(),
            field: match &self.architecture {
                Some(architecture) => metadata_key(architecture, field),
                None => format!("{}{field}", self.prefix),
            },
            problem: problem.to_string(),
        }
    }

    /// A field's value; null counts as absent.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.members.get(field).filter(|value| !value.is_null())
    }

    /// The names of all fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// A nested object.
    pub(crate) fn object(&self, field: &str) -> Result<Option<Self>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(Self {
                file: self.file,
                architecture: self.architecture.clone(),
                prefix: format!("{}{field}.", self.prefix),
                members: members.clone(),
            })),
            Some(other) => {
                Err(self.wrong(field, format!("is {}; expected an object", brief(other))))
            }
        }
    }

    /// An integer within bounds, or absent.
    pub(crate) fn count(
        &self,
        field: &str,
        bounds: RangeInclusive<usize>,
    ) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        match count.filter(|count| bounds.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.wrong(
                field,
                format!(
                    "is {}; expected an integer from {} to {}",
                    brief(value),
                    bounds.start(),
                    bounds.end()
                ),
            )),
        }
    }

    /// An integer within bounds that must be there.
    pub(crate) fn required_count(
        &self,
        field: &str,
        bounds: RangeInclusive<usize>,
    ) -> Result<usize, ModelError> {
        self.count(field, bounds)?
            .ok_or_else(|| self.wrong(field, "is missing"))
    }

    /// A number within bounds, or absent.
    pub(crate) fn number(
        &self,
        field: &str,
        bounds: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(
                field,
                format!(
                    "is {}; expected a number from {} to {}",
                    brief(value),
                    bounds.start(),
                    bounds.end()
                ),
            )),
        }
    }

    /// Whether a field is there, if only with null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.members.contains_key(field)
    }

    /// A list of at most [`LIST_MAX`] values, or absent.
    pub(crate) fn list(&self, field: &str) -> Result<Option<&[Value]>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() <= LIST_MAX => Ok(Some(list)),
            Some(Value::Array(list)) => {
                let problem = format!("has {} entries; at most {LIST_MAX} are read", list.len());
                Err(self.wrong(field, problem))
            }
            Some(other) => Err(self.wrong(field, format!("is {}; expected a list", brief(other)))),
        }
    }

    /// A truth value, or absent.
    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(
                field,
                format!("is {}; expected true or false", brief(other)),
            )),
        }
    }

    /// A text, or absent.
    pub(crate) fn text(&self, field: &str) -> Result<Option<&str>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, format!("is {}; expected a text", brief(other)))),
        }
    }
}

/// A value as a message shows it.
pub(crate) fn brief(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
