//! The `[retrieval]` table: searches in what callers have stored.

use serde::Deserialize;

use super::{ConfigError, invalid};

/// Home of the index of vector stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexHome {
    /// The memory of this server.
    #[default]
    Memory,
    /// The database that is the store, with its extension `pgvector`.
    Pgvector,
}

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalConfig {
    /// Chats may opt in to the server tool `search`.
    pub search_tool: bool,
    /// Retriever of the vector stores that name none.
    pub retriever: Option<String>,
    /// Home of the index.
    pub index: IndexHome,
}

impl RetrievalConfig {
    /// The table, if the store is one that can have such an index.
    pub(crate) fn check(self, in_database: bool) -> Result<Self, ConfigError> {
        match self.index == IndexHome::Pgvector && !in_database {
            true => Err(invalid(
                "retrieval.index",
                "`pgvector` needs a PostgreSQL database as the store: set store.url, or leave the index in memory",
            )),
            false => Ok(self),
        }
    }
}
