//! Treatment of request fields that mortise cannot honour.

/// Treatment of fields that mortise cannot honour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unsupported {
    /// The request is refused and the field is named.
    #[default]
    Refuse,
    /// The request goes on without the field, and a response header names it.
    Ignore,
}
