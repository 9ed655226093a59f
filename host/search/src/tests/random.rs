//! Documents, attributes and filters that are drawn.

use mortise_retrieval::Chunk;
use serde_json::{Value, json};

/// Numbers that are the same in each run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }

    /// A vector of length 1 of eighths, so that products are exact in whatever order they are added.
    pub(super) fn vector(&mut self, dimensions: usize) -> Vec<f32> {
        let halves = self.below(4);
        let quarters = 16 - 4 * halves;
        let mut vector = vec![0.0; dimensions];
        for number in 0..halves + quarters {
            let mut place = self.below(dimensions);
            while vector[place] != 0.0 {
                place = (place + 1) % dimensions;
            }
            let sign = [1.0, -1.0][self.below(2)];
            vector[place] = sign * if number < halves { 0.5 } else { 0.25 };
        }
        vector
    }

    pub(super) fn text(&mut self, words: usize) -> String {
        let words = (0..words).map(|_| {
            let rare = 1 + self.below(40);
            format!("Word{}", self.below(rare))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn chunks(&mut self, dimensions: usize) -> Vec<Chunk> {
        let chunks = 1 + self.below(11) as u32;
        (0..chunks)
            .map(|number| Chunk {
                start: 10 * number,
                end: 10 * number + 9,
                page: None,
                vector: self.vector(dimensions),
                text: {
                    let words = 1 + self.below(30);
                    self.text(words)
                },
            })
            .collect()
    }

    pub(super) fn value(&mut self) -> Value {
        match self.below(8) {
            0 => json!("a"),
            1 => json!("a\"\\b"),
            2 => json!("\u{0}\u{1}ü"),
            3 => json!(self.below(2) == 0),
            4 => json!(1e300),
            5 => json!(-0.5),
            _ => json!(self.below(4)),
        }
    }

    pub(super) fn attributes(&mut self) -> Value {
        let mut object = serde_json::Map::new();
        for name in ["x", "y y", "z\"\u{0}"] {
            if self.below(3) > 0 {
                object.insert(name.to_owned(), self.value());
            }
        }
        Value::Object(object)
    }

    pub(super) fn filter(&mut self, depth: usize) -> Value {
        let key = ["x", "y y", "z\"\u{0}", "absent"][self.below(4)];
        match self.below(if depth == 0 { 8 } else { 11 }) {
            kind @ 0..4 => {
                let kind = ["gt", "gte", "lt", "lte"][kind];
                json!({"type": kind, "key": key, "value": self.below(4)})
            }
            kind @ 4..6 => {
                json!({"type": (["eq", "ne"][kind - 4]), "key": key, "value": self.value()})
            }
            kind @ 6..8 => {
                let values: Vec<Value> = (0..self.below(4)).map(|_| self.value()).collect();
                json!({"type": (["in", "nin"][kind - 6]), "key": key, "value": values})
            }
            kind => {
                let kind = ["and", "or"][kind % 2];
                let filters: Vec<Value> =
                    (0..self.below(4)).map(|_| self.filter(depth - 1)).collect();
                json!({"type": kind, "filters": filters})
            }
        }
    }
}
