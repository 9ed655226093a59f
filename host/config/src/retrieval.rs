//! The `[retrieval]` table: searches in what callers have stored.

use serde::Deserialize;

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalConfig {
    /// Chats may opt in to the server tool `search`.
    pub search_tool: bool,
    /// Retriever of the vector stores that name none.
    pub retriever: Option<String>,
}
