//! A filter of a search in a vector store, a zero byte, and the attributes of a file.

use crate::files;
use mortise_retrieval::{
    Attributes, Chunk, Document, AttributeFilter, Index, PassageQuery, Weights, attributes_json, attributes_of,
};

/// Whether a search with this filter finds the last of these files.
fn admits(filter: &AttributeFilter, files: &[&Attributes]) -> bool {
    let mut index = Index::new(1);
    for (number, attributes) in files.iter().enumerate() {
        let document = Document {
            id: number.to_string(),
            name: String::new(),
            attributes: (*attributes).clone(),
        };
        let chunk = Chunk {
            start: 0,
            end: 1,
            page: None,
            vector: vec![1.0],
            text: "a".to_owned(),
        };
        index.add(document, vec![chunk]);
    }
    let hits = index.search(&PassageQuery {
        text: "",
        vector: &[1.0],
        weights: Weights {
            meaning: 1.0,
            words: 0.0,
        },
        most: files.len(),
        filter: Some(filter),
        least_similarity: None,
        diversity: None,
    });
    let last = (files.len() - 1).to_string();
    hits.iter().any(|hit| hit.document.id == last)
}

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Some((filter, attributes)) = files::parts(bytes) else {
        return;
    };
    let filter = serde_json::from_slice(filter).ok();
    let attributes = serde_json::from_slice(attributes).ok();
    let filter = filter.and_then(|value| AttributeFilter::of(&value, "filters").ok());
    let attributes = attributes.and_then(|object| attributes_of(&object, "attributes").ok());
    if let (Some(filter), Some(attributes)) = (filter, attributes) {
        // Numbers that values have, and the files that are there, decide nothing.
        let others = [
            &Attributes::new(),
            &attributes,
            &Attributes::new(),
            &attributes,
        ];
        assert_eq!(admits(&filter, &[&attributes]), admits(&filter, &others));
        assert!(serde_json::from_str::<serde_json::Value>(&attributes_json(&attributes)).is_ok());
        filter.json_path();
    }
}
