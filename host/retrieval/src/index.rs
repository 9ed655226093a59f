//! The index of one collection, in memory.

use std::ops::Range;

use crate::attribute_table::AttributeTable;
use crate::filter::{AttributeFilter, Attributes};
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
pub(crate) struct ChunkPlace {
    pub(crate) document: u32,
    pub(crate) chunk: u32,
}

/// Chunks of all documents of a collection.
#[derive(Debug)]
pub struct Index {
    pub(crate) documents: Vec<Document>,
    attributes: AttributeTable,
    /// For each document, the row behind its last.
    ends: Vec<u32>,
    pub(crate) rows: Vec<ChunkPlace>,
    pub(crate) vectors: Vectors,
    pub(crate) lexical: Lexical,
}

impl Index {
    /// An empty one, for vectors of so many dimensions.
    pub fn new(dimensions: usize) -> Self {
        Self {
            documents: Vec::new(),
            attributes: AttributeTable::default(),
            ends: Vec::new(),
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
        let rows = self.rows.len() * size_of::<ChunkPlace>();
        let documents = self.documents.len() * 512 + self.attributes.bytes();
        self.vectors.bytes() + self.lexical.bytes() + rows + documents
    }

    /// Add a document with its chunks, in order. One of this id that is there is replaced. Chunks whose vectors have another
    /// number of dimensions are left out.
    pub fn add(&mut self, document: Document, chunks: impl IntoIterator<Item = Chunk>) {
        self.remove(&document.id);
        let place = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        for (number, chunk) in (0u32..).zip(chunks) {
            if self.vectors.push(&chunk.vector) {
                self.lexical.push(&chunk.text);
                self.rows.push(ChunkPlace {
                    document: place,
                    chunk: number,
                });
            }
        }
        self.attributes.push(&document.attributes);
        self.documents.push(document);
        self.ends
            .push(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
    }

    /// Remove a document, if it is there.
    pub fn remove(&mut self, id: &str) {
        let found = self.documents.iter().position(|document| document.id == id);
        let Some(gone) = found else {
            return;
        };
        self.documents.remove(gone);
        self.attributes.replace(gone, None);
        self.renumber();
        let end = self.ends.remove(gone);
        let start = gone.checked_sub(1).and_then(|before| self.ends.get(before));
        let rows = end - start.copied().unwrap_or(0);
        self.ends.iter_mut().skip(gone).for_each(|end| *end -= rows);
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
        let mut documents = self.documents.iter_mut().enumerate();
        if let Some((place, document)) = documents.find(|(_, document)| document.id == id) {
            self.attributes.replace(place, Some(&attributes));
            document.attributes = attributes;
            self.renumber();
        }
    }

    /// Give attributes new numbers, if many that were given are not needed any more.
    fn renumber(&mut self) {
        if self.attributes.is_stale() {
            self.attributes = AttributeTable::default();
            let documents = self.documents.iter();
            documents.for_each(|document| self.attributes.push(&document.attributes));
        }
    }

    /// Rows of the documents that a filter admits, as ranges in order.
    pub(crate) fn admitted(&self, filter: Option<&AttributeFilter>) -> Vec<Range<usize>> {
        let Some(filter) = filter else {
            return std::iter::once(0..self.rows.len()).collect();
        };
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        for (admitted, end) in self.attributes.admitted(filter).zip(&self.ends) {
            let range = start..*end as usize;
            start = range.end;
            if admitted {
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
        }
        ranges
    }
}
