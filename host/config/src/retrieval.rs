//! The `[retrieval]` table: searches in what callers have stored.

use serde::Deserialize;

/// The table as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRetrieval {
    /// Chats may opt in to the server tool `search`.
    pub(crate) search_tool: bool,
}
