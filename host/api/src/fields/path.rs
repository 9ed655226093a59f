//! Paths of fields in a request, as errors name them.

use std::fmt;

use serde_json::Value;

/// One step into a JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathSegment {
    Key(String),
    Index(usize),
}

/// Path of a field, such as `messages[2].content[0].text`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<PathSegment>);

impl FieldPath {
    pub(crate) fn segments(&self) -> &[PathSegment] {
        &self.0
    }

    /// The path of a member of this object.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(PathSegment::Key(key.to_owned()))
    }

    /// The path of an item of this array.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(PathSegment::Index(index))
    }

    fn with(&self, segment: PathSegment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// The path of the object or array that holds this field; `None` for the whole body.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// The value at this path.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0
            .iter()
            .try_fold(value, |value, segment| match segment {
                PathSegment::Key(key) => value.get(key),
                PathSegment::Index(index) => value.get(index),
            })
    }
}

/// A field of the body itself.
impl From<&str> for FieldPath {
    fn from(key: &str) -> Self {
        Self::default().key(key)
    }
}

impl FromIterator<PathSegment> for FieldPath {
    fn from_iter<T: IntoIterator<Item = PathSegment>>(segments: T) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                PathSegment::Key(key) if at == 0 => formatter.write_str(key)?,
                PathSegment::Key(key) => write!(formatter, ".{key}")?,
                PathSegment::Index(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}
