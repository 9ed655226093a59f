//! Questions to retrievers and their answers, in the host's own types (`interface retriever`).

use std::ops::Range;

/// Work of a retriever (`retriever.traits`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetrieverTraits {
    /// Flag of a retriever that divides documents.
    pub chunk: bool,
    /// Flag of a retriever that rewrites queries.
    pub rewrite: bool,
    /// Flag of a retriever that chooses passages.
    pub assemble: bool,
}

/// Context of a call of a retriever (`retriever.context`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetrieverContext {
    /// The id of the collection.
    pub collection: String,
    /// Identity of the caller.
    pub subject: String,
    /// Account of the caller.
    pub tenant: Option<String>,
}

/// A document that is to be divided (`retriever.document`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceText {
    /// Name of the document's file.
    pub name: String,
    /// Media type of the file.
    pub media_type: String,
    /// Text of the document.
    pub text: String,
}

/// Size of chunks (`retriever.sizes`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkSizes {
    /// Tokens of a chunk.
    pub max_tokens: u32,
    /// Tokens that a chunk may share with the one before.
    pub overlap_tokens: u32,
    /// Bytes that have about as many tokens as a chunk may.
    pub about_bytes: u32,
    /// Chunks that there may be.
    pub max_chunks: u32,
}

/// A passage that was found (`retriever.candidate`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passage {
    /// Name of the passage's document.
    pub document: String,
    /// Place of the passage in the document's text, in bytes.
    pub place: Range<u32>,
    /// Text of the passage.
    pub text: String,
    /// Score of the search.
    pub score: f32,
    /// Cosine of the passage's vector and the query's.
    pub similarity: f32,
    /// Tokens of the passage.
    pub tokens: u32,
}

/// Room for passages (`retriever.budget`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassageBudget {
    /// Most passages.
    pub passages: u32,
    /// Most tokens of all passages.
    pub tokens: u32,
}

/// Separator of passages (`retriever.joint`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Joint {
    /// An empty line.
    #[default]
    BlankLine,
    /// A line `---` between empty ones.
    Rule,
}

/// Passages that a model is given (`retriever.assembly`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Indices of candidates, in order.
    pub chosen: Vec<u32>,
    /// Separator.
    pub joint: Joint,
}
