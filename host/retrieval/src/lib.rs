//! Retrieval: texts of documents, their chunks, and an index that finds chunks by meaning and by words.
//!
//! The crate knows nothing of HTTP, of models or of the store: its callers bring vectors, and keep the bytes that
//! [`Chunk::encode`] makes.

mod attribute_table;
mod candidates;
mod chunk;
mod document;
mod filter;
mod filter_path;
mod fusion;
mod index;
mod lexical;
pub mod limits;
mod ranked;
mod search;
mod stored;
mod terms;
mod vectors;

pub use chunk::{ChunkSpan, Chunking, chunks, without_blanks};
pub use document::{DocumentError, DocumentPages, Format, is_pdf, text_of, text_of_pages};
pub use filter::{Attribute, AttributeFilter, Attributes, FilterError, attributes_of};
pub use filter_path::attributes_json;
pub use index::{Document, Index};
pub use lexical::{LexicalTotals, counted, wanted};
pub use ranked::best;
pub use search::{Hit, PassageQuery, Weights};
pub use stored::Chunk;
pub use vectors::dot;
