//! Time of searches in 100,000 chunks of 384 dimensions:
//!
//! ```sh
//! cargo run --release -p mortise-retrieval --example search_speed [DOCUMENTS [QUERIES]]
//! ```
//!
//! of 1,000 documents unless told otherwise, at 200 queries of each kind.
//!
//! Vectors lie around 1,000 centres, as those of texts on some subjects do, and texts are of words as rare as those of a
//! language. Half of the documents are left out by the filter.

use std::time::{Duration, Instant};

use mortise_retrieval::{
    AttributeFilter, Chunk, Document, Index, PassageQuery, Weights, attributes_of,
};
use serde_json::json;

const DIMENSIONS: usize = 384;
const DOCUMENTS: usize = 1000;
const ROWS: usize = 100_000;
const CENTRES: usize = 1000;
const WORDS: usize = 80;
const QUERIES: usize = 200;

/// Numbers from 0 to 1 that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A vector of length 1 around another, or anywhere.
    fn vector(&mut self, around: Option<&[f32]>) -> Vec<f32> {
        let spread = if around.is_some() { 0.08 } else { 1.0 };
        let mut vector: Vec<f32> = (0..DIMENSIONS)
            .map(|_| spread * (self.next() - 0.5))
            .collect();
        if let Some(centre) = around {
            vector
                .iter_mut()
                .zip(centre)
                .for_each(|(number, of)| *number += of);
        }
        let length = vector
            .iter()
            .map(|number| number * number)
            .sum::<f32>()
            .sqrt();
        vector.iter_mut().for_each(|number| *number /= length);
        vector
    }

    /// Words, of which the n-th is about as frequent as 1/n.
    fn text(&mut self, words: usize) -> String {
        let words = (0..words).map(|_| format!("w{}", (50_000f32.powf(self.next())) as u32));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One of the centres.
fn centre(random: &mut Random, centres: &[Vec<f32>]) -> Vec<f32> {
    let at = (random.next() * CENTRES as f32) as usize;
    centres[at.min(CENTRES - 1)].clone()
}

/// The index of all documents, made of them as they are stored.
fn index(random: &mut Random, centres: &[Vec<f32>], documents: usize) -> Index {
    let mut index = Index::new(DIMENSIONS);
    let mut taken = Duration::ZERO;
    for number in 0..documents {
        let attributes = json!({"half": number % 2});
        let document = Document {
            id: format!("file-{number}"),
            name: format!("{number}.txt"),
            attributes: attributes_of(attributes.as_object().expect("an object"), "a")
                .expect("attributes"),
        };
        let stored: Vec<Vec<u8>> = (0..ROWS / documents)
            .map(|_| {
                let around = centre(random, centres);
                let chunk = Chunk {
                    start: 0,
                    end: 0,
                    page: None,
                    vector: random.vector(Some(&around)),
                    text: random.text(WORDS),
                };
                chunk.encode()
            })
            .collect();
        let began = Instant::now();
        let chunks = stored.iter().filter_map(|bytes| Chunk::decode(bytes));
        index.add(document, chunks);
        taken += began.elapsed();
    }
    println!(
        "{} chunks in {:.1} s, {} MiB; the process has {}",
        index.len(),
        taken.as_secs_f32(),
        index.bytes() >> 20,
        resident()
    );
    index
}

/// Memory of this process, as Linux tells it.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap_or(" an unknown size").trim().to_owned()
}

/// Processor time of this thread so far, as Linux tells it: other work on the machine adds nothing to it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(first.unwrap_or(0))
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse());
    let mut argument = |usual| {
        arguments
            .next()
            .map_or(usual, |word| word.expect("a number"))
    };
    let (documents, queries) = (argument(DOCUMENTS), argument(QUERIES));
    let mut random = Random(88_172_645_463_325_252);
    let centres: Vec<Vec<f32>> = (0..CENTRES).map(|_| random.vector(None)).collect();
    let mut index = index(&mut random, &centres, documents);
    let filter = AttributeFilter::of(&json!({"type": "eq", "key": "half", "value": 1}), "filters")
        .expect("a filter");
    let queries: Vec<(String, Vec<f32>)> = (0..queries)
        .map(|_| {
            let around = centre(&mut random, &centres);
            (random.text(6), random.vector(Some(&around)))
        })
        .collect();
    for (name, meaning, words, filter) in [
        ("meaning", 1.0, 0.0, None),
        ("words", 0.0, 1.0, None),
        ("both", 1.0, 1.0, None),
        ("both, filtered", 1.0, 1.0, Some(&filter)),
    ] {
        let used = processor_time();
        let mut times: Vec<Duration> = queries
            .iter()
            .map(|(text, vector)| {
                let query = PassageQuery {
                    text,
                    vector,
                    weights: Weights { meaning, words },
                    most: 10,
                    filter,
                    least_similarity: None,
                    diversity: None,
                };
                let began = Instant::now();
                let found = index.search(&query).len();
                assert_eq!(found, 10);
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1000.0;
        println!(
            "{name:15} least {:6.2} ms   p50 {:6.2} ms   p99 {:6.2} ms   processor {:6.2} ms",
            at(0),
            at(50),
            at(99),
            (processor_time() - used).as_secs_f64() * 1000.0 / queries.len() as f64
        );
    }
    let began = Instant::now();
    (0..10).for_each(|number| index.remove(&format!("file-{number}")));
    println!(
        "a document of {} chunks is removed in {:.1} ms",
        ROWS / documents,
        began.elapsed().as_secs_f64() * 100.0
    );
}
