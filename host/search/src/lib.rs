//! Searches in the documents of a space, wherever its index is: in the memory of each server ([`MemoryIndex`]), or in the
//! PostgreSQL database that is the store ([`DatabaseIndex`]). Both answer the same.
//!
//! A space is what a key of the store names. Its documents are the records whose ids begin with that of the key and `/`, and the
//! chunks of a document are the items of its record. What else stands in a record, [`ReadRecord`] reads.

mod chunks;
mod database;
mod index;
pub mod limits;
mod memory;
mod postings;
#[cfg(test)]
mod tests;

pub use chunks::{chunk_id, chunks};
pub use database::DatabaseIndex;
pub use index::{
    DocumentChange, IndexHit, IndexState, Lookup, ReadRecord, SearchIndex, revision_key,
};
pub use memory::MemoryIndex;
