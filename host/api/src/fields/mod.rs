//! Reads the fields of a request's JSON object into typed groups. A group is a struct of fields that
//! belong together; routes are made of groups, and what no group reads is unknown.

mod declared;
mod names;
mod path;
mod probe;
mod reader;
mod refusal;
mod refused;
#[cfg(test)]
mod tests;
mod unreadable;
mod values;

use mortise_http::{Problem, nearest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::names::names_at;
use crate::unsupported::Unsupported;

pub(crate) use self::declared::RouteFields;
pub(crate) use self::path::{FieldPath, PathSegment};
pub(crate) use self::reader::read;
pub(crate) use self::refused::refused_fields;
pub(crate) use self::unreadable::{missing, unreadable, wrong_type, wrong_value};
pub(crate) use self::values::{NumberMembers, TextOr, TextOrTexts, TokenId, WordOr, words};

/// The object of a request while it is read.
pub(crate) struct FieldReader {
    object: Value,
    mode: Unsupported,
    /// Names that some group reads.
    known: Vec<&'static str>,
    /// Fields inside of those that their group does not read.
    unknown: Vec<Unknown>,
    /// Fields that were left out of account, in `Ignore` mode.
    ignored: Vec<String>,
}

/// A field that is not read, and the names that its group would read at the path of its object.
struct Unknown {
    path: FieldPath,
    names: fn(&FieldPath) -> &'static [&'static str],
}

impl FieldReader {
    pub(crate) fn new(object: Map<String, Value>, mode: Unsupported) -> Self {
        Self {
            object: Value::Object(object),
            mode,
            known: Vec::new(),
            unknown: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Read a group of fields. Null counts as absent, as it does at OpenAI.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        self.known.extend(names_at::<T>(&FieldPath::default()));
        let (read, unread) = read(&self.object)
            .map_err(|(path, refusal)| unreadable(&path, refusal, path.find(&self.object)))?;
        // Fields of the body itself may belong to another group.
        let unread = unread.into_iter().filter(|path| path.segments().len() > 1);
        for path in unread {
            if self.has(&path) {
                let names = names_at::<T>;
                self.unknown.push(Unknown { path, names });
            }
        }
        Ok(read)
    }

    /// Read a group whose fields may all be left out. Most requests have none of them, which then costs no more than to
    /// see that.
    pub(crate) fn read_if_any<T: DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        let names = names_at::<T>(&FieldPath::default());
        let mut given = self.object.as_object().into_iter().flatten();
        if names.is_empty() || given.any(|(name, _)| names.contains(&name.as_str())) {
            return self.read();
        }
        self.known.extend(names);
        Ok(T::default())
    }

    /// Whether the caller gave this field.
    pub(crate) fn has(&self, path: &FieldPath) -> bool {
        path.find(&self.object)
            .is_some_and(|value| !value.is_null())
    }

    /// Keys of the object at a path, in the order in which the caller wrote them.
    pub(crate) fn keys_at(&self, path: &FieldPath) -> Vec<String> {
        match path.find(&self.object) {
            Some(Value::Object(object)) => object.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The refusal of a field that is not read in the object at a path, if there is one: what an object
    /// lacks is often there under a misspelt name.
    pub(crate) fn unknown_in(&self, path: &FieldPath) -> Option<Problem> {
        let mut unknown = self.unknown.iter();
        let found = unknown.find(|unknown| unknown.path.parent().as_ref() == Some(path));
        found
            .filter(|_| self.mode == Unsupported::Refuse)
            .map(|unknown| unknown_field(&unknown.path, (unknown.names)(path)))
    }

    /// Refuse a field that cannot be honoured, or note that it is left out, as configured.
    pub(crate) fn unsupported(&mut self, path: &FieldPath, why: &str) -> Result<(), Problem> {
        match self.mode {
            Unsupported::Refuse => Err(Problem::unsupported(
                path.to_string(),
                format!("`{path}` is not supported: {why}"),
            )),
            Unsupported::Ignore => {
                self.ignored.push(path.to_string());
                Ok(())
            }
        }
    }

    /// Note that a field is left out of account because of another.
    pub(crate) fn left_out(&mut self, path: &FieldPath) {
        self.ignored.push(path.to_string());
    }

    /// Refuse what no group read, or note that it is left out, as configured. `tolerated` are fields
    /// that need not be understood. Returns the fields that were left out of account, those among them.
    pub(crate) fn finish(
        mut self,
        tolerated: impl Fn(&[PathSegment]) -> bool,
    ) -> Result<Vec<String>, Problem> {
        let unknown = std::mem::take(&mut self.unknown);
        for Unknown { path, names } in unknown {
            if tolerated(path.segments()) {
                self.ignored.push(path.to_string());
            } else {
                let names = path.parent().map_or(&[][..], |parent| names(&parent));
                self.refuse_unknown(&path, names)?;
            }
        }
        let names = std::mem::take(&mut self.known);
        let top = self.object.as_object().into_iter().flatten();
        let top = top.filter(|(name, value)| !value.is_null() && !names.contains(&name.as_str()));
        let top: Vec<FieldPath> = top
            .map(|(name, _)| FieldPath::from(name.as_str()))
            .collect();
        for path in top {
            self.refuse_unknown(&path, &names)?;
        }
        Ok(self.ignored)
    }

    fn refuse_unknown(&mut self, path: &FieldPath, names: &[&str]) -> Result<(), Problem> {
        if self.mode == Unsupported::Ignore {
            self.ignored.push(path.to_string());
            return Ok(());
        }
        Err(unknown_field(path, names))
    }
}

fn unknown_field(path: &FieldPath, names: &[&str]) -> Problem {
    let hint = match (path.segments().last(), path.parent()) {
        (Some(PathSegment::Key(name)), Some(parent)) => nearest(name, names.iter().copied())
            .map(|candidate| format!("; did you mean `{}`?", parent.key(candidate))),
        _ => None,
    };
    let hint = hint.unwrap_or_default();
    let message = format!("unknown field `{path}`{hint}");
    let mut error = Problem::invalid(path.to_string(), message);
    error.code = "unknown_parameter".to_owned();
    error
}
