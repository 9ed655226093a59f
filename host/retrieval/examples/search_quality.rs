//! Searches for `tests/retrieval/measure_quality.py`: reads documents as lines of JSON with `text` and `vector`, an empty line,
//! and questions in the same form; answers each with the places of the ten best, by `words`, by `meaning` and by `both`.

use std::io::{BufRead as _, Write as _};

use mortise_retrieval::{Attributes, Chunk, Document, Index, PassageQuery, Weights};
use serde_json::{Value, json};

const BEST: usize = 10;

fn parsed(line: &str) -> (String, Vec<f32>) {
    let value: Value = serde_json::from_str(line).expect("JSON");
    let text = value["text"].as_str().expect("a text").to_owned();
    let vector = value["vector"].as_array().expect("a vector").iter();
    let vector = vector.map(|number| number.as_f64().expect("a number") as f32);
    (text, vector.collect())
}

fn main() {
    let mut lines = std::io::stdin()
        .lock()
        .lines()
        .map(|line| line.expect("a line"));
    let mut chunks = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let (text, vector) = parsed(&line);
        chunks.push(Chunk {
            start: 0,
            end: 0,
            page: None,
            vector,
            text,
        });
    }
    let mut index = Index::new(chunks.first().map_or(0, |chunk| chunk.vector.len()));
    let document = Document {
        id: "all".to_owned(),
        name: "all".to_owned(),
        attributes: Attributes::default(),
    };
    index.add(document, chunks);
    let mut out = std::io::stdout().lock();
    for line in lines {
        let (text, vector) = parsed(&line);
        let best = |meaning, words| -> Vec<u32> {
            let query = PassageQuery {
                text: &text,
                vector: &vector,
                weights: Weights { meaning, words },
                most: BEST,
                filter: None,
                least_similarity: None,
                diversity: None,
            };
            index.search(&query).iter().map(|hit| hit.chunk).collect()
        };
        let found =
            json!({"words": best(0.0, 1.0), "meaning": best(1.0, 0.0), "both": best(1.0, 1.0)});
        writeln!(out, "{found}").expect("a reader");
        out.flush().expect("a reader");
    }
}
