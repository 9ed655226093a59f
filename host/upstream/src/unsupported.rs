//! Settings that an upstream has no field for.

/// A setting that the upstream has no field for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {why}")]
pub(crate) struct UnsupportedSetting {
    field: String,
    why: String,
}

impl UnsupportedSetting {
    pub(crate) fn new(field: &str, why: impl Into<String>) -> Self {
        let (field, why) = (field.to_owned(), why.into());
        Self { field, why }
    }
}
