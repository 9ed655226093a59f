//! Capabilities of models.

/// Capability of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Generate text from a conversation or a prompt.
    Generate,
    /// Compute embeddings of texts.
    Embed,
    /// Score pairs of texts.
    Rerank,
}

impl Capability {
    /// Name of the capability.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Embed => "embed",
            Self::Rerank => "rerank",
        }
    }
}
