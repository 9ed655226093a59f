//! The index of one collection, in memory.

use crate::filter::{Attributes, Filter};
use crate::lexical::Lexical;
use crate::stored::Chunk;
use crate::vectors::Vectors;

/// A document of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Name of its file.
    pub name: String,
    /// Its attributes.
    pub attributes: Attributes,
}

/// Place of a chunk: its document's, and its number there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) document: u32,
    pub(crate) chunk: u32,
}

/// Chunks of all documents of a collection.
#[derive(Debug)]
pub struct Index {
    pub(crate) documents: Vec<Document>,
    pub(crate) rows: Vec<Place>,
    pub(crate) vectors: Vectors,
    pub(crate) lexical: Lexical,
}

impl Index {
    /// An empty one, for vectors of so many dimensions.
    pub fn new(dimensions: usize) -> Self {
        Self {
            documents: Vec::new(),
            rows: Vec::new(),
            vectors: Vectors::new(dimensions),
            lexical: Lexical::default(),
        }
    }

    /// Dimensions of the vectors.
    pub fn dimensions(&self) -> usize {
        self.vectors.dimensions()
    }

    /// Chunks of all documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// About as many bytes as it takes.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.len() * size_of::<Place>();
        self.vectors.bytes() + self.lexical.bytes() + rows + self.documents.len() * 512
    }

    /// Add a document with its chunks, in order. One of this id that is there is replaced. Chunks whose vectors have another
    /// number of dimensions are left out.
    pub fn add(&mut self, document: Document, chunks: impl IntoIterator<Item = Chunk>) {
        self.remove(&document.id);
        let place = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        for (number, chunk) in (0u32..).zip(chunks) {
            if self.vectors.push(&chunk.vector) {
                self.lexical.push(&chunk.text);
                self.rows.push(Place {
                    document: place,
                    chunk: number,
                });
            }
        }
        self.documents.push(document);
    }

    /// Remove a document, if it is there.
    pub fn remove(&mut self, id: &str) {
        let found = self.documents.iter().position(|document| document.id == id);
        let Some(gone) = found else {
            return;
        };
        self.documents.remove(gone);
        let gone = u32::try_from(gone).unwrap_or(u32::MAX);
        let mut next = 0;
        let kept: Vec<Option<u32>> = self
            .rows
            .iter()
            .map(|row| {
                let new = (row.document != gone).then_some(next);
                next += u32::from(new.is_some());
                new
            })
            .collect();
        self.vectors.retain(&kept);
        self.lexical.retain(&kept);
        self.rows.retain(|row| row.document != gone);
        for row in &mut self.rows {
            row.document -= u32::from(row.document > gone);
        }
    }

    /// Change the attributes of a document, if it is there.
    pub fn set_attributes(&mut self, id: &str, attributes: Attributes) {
        let mut documents = self.documents.iter_mut();
        if let Some(document) = documents.find(|document| document.id == id) {
            document.attributes = attributes;
        }
    }

    /// For each document, whether a filter admits it.
    pub(crate) fn admitted(&self, filter: Option<&Filter>) -> Vec<bool> {
        let documents = self.documents.iter();
        let admits =
            |document: &Document| filter.is_none_or(|one| one.admits(&document.attributes));
        documents.map(admits).collect()
    }
}
