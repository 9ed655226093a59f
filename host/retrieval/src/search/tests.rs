use serde_json::json;

use super::*;
use crate::filter::attributes_of;
use crate::stored::Chunk;

fn chunk(text: &str, vector: [f32; 3]) -> Chunk {
    let length = vector
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt();
    Chunk {
        start: 0,
        end: 1,
        page: None,
        vector: vector.iter().map(|number| number / length).collect(),
        text: text.to_owned(),
    }
}

fn document(id: &str, year: i64) -> Document {
    let attributes = json!({"year": year});
    let attributes = attributes.as_object().expect("an object");
    Document {
        id: id.to_owned(),
        name: format!("{id}.txt"),
        attributes: attributes_of(attributes, "attributes").expect("attributes"),
    }
}

fn index() -> Index {
    let mut index = Index::new(3);
    let cats = [
        chunk("the cat sat on the mat", [1.0, 0.0, 0.0]),
        chunk("cats purr", [1.0, 0.1, 0.0]),
    ];
    index.add(document("cats", 2001), cats);
    index.add(
        document("dogs", 2002),
        [chunk("a dog barks at the cat", [0.0, 1.0, 0.0])],
    );
    index.add(
        document("fish", 2003),
        [chunk("a fish swims", [0.0, 0.0, 1.0])],
    );
    index
}

fn query<'a>(text: &'a str, vector: &'a [f32]) -> PassageQuery<'a> {
    PassageQuery {
        text,
        vector,
        weights: Weights::default(),
        most: 10,
        filter: None,
        least_similarity: None,
        diversity: None,
    }
}

fn found<'a>(index: &'a Index, query: &PassageQuery<'_>) -> Vec<(&'a str, u32)> {
    let hits = index.search(query);
    hits.iter()
        .map(|hit| (hit.document.id.as_str(), hit.chunk))
        .collect()
}

#[test]
fn chunks_are_found_by_meaning_by_words_and_by_both() {
    let index = index();
    let mut asked = query("dog", &[1.0, 0.0, 0.0]);
    asked.most = 2;
    asked.weights = Weights {
        meaning: 1.0,
        words: 0.0,
    };
    assert_eq!(found(&index, &asked), [("cats", 0), ("cats", 1)]);
    asked.weights = Weights {
        meaning: 0.0,
        words: 1.0,
    };
    assert_eq!(found(&index, &asked), [("dogs", 0)]);
    asked.weights = Weights::default();
    let hits = index.search(&asked);
    // Third by meaning and first by words, before what is first by meaning alone.
    assert_eq!(hits[0].document.id, "dogs");
    assert!(hits[0].score > hits[1].score && hits[0].score < 1.0);
    assert!((hits[1].similarity - 1.0).abs() < 1e-5);
}

#[test]
fn filters_thresholds_and_diversity_hold() {
    let index = index();
    let filter = json!({"type": "gte", "key": "year", "value": 2002});
    let filter = AttributeFilter::of(&filter, "filters").expect("a filter");
    let mut asked = query("the cat", &[1.0, 0.0, 0.0]);
    asked.filter = Some(&filter);
    let ids: Vec<&str> = found(&index, &asked)
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, ["dogs", "fish"]);
    asked.filter = None;
    asked.least_similarity = Some(0.5);
    assert_eq!(found(&index, &asked), [("cats", 0), ("cats", 1)]);
    asked.least_similarity = Some(1.1);
    assert!(found(&index, &asked).is_empty());
    let mut asked = query("", &[1.0, 0.2, 0.0]);
    asked.weights = Weights {
        meaning: 1.0,
        words: 0.0,
    };
    (asked.most, asked.diversity) = (2, Some(0.3));
    let ids: Vec<&str> = found(&index, &asked)
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert!(
        ids.contains(&"cats") && ids.len() == 2 && ids[0] != ids[1],
        "{ids:?}"
    );
}

#[test]
fn what_is_removed_or_replaced_is_found_no_more() {
    let mut index = index();
    let before = index.bytes();
    index.remove("cats");
    index.remove("absent");
    assert_eq!((index.len(), index.dimensions()), (2, 3));
    assert!(index.bytes() < before);
    assert_eq!(
        found(&index, &query("cat", &[0.0, 1.0, 0.0]))[0],
        ("dogs", 0)
    );
    index.add(
        document("dogs", 2009),
        [chunk("a wolf howls", [0.0, 1.0, 0.0])],
    );
    let mut words = query("dog cat", &[0.0, 0.0, 1.0]);
    words.weights = Weights {
        meaning: 0.0,
        words: 1.0,
    };
    assert!(found(&index, &words).is_empty());
    words.text = "wolf";
    assert_eq!(found(&index, &words), [("dogs", 0)]);
    // As if the rest had never been there.
    let mut anew = Index::new(3);
    anew.add(
        document("fish", 2003),
        [chunk("a fish swims", [0.0, 0.0, 1.0])],
    );
    anew.add(
        document("dogs", 2009),
        [chunk("a wolf howls", [0.0, 1.0, 0.0])],
    );
    let asked = query("a fish", &[0.1, 0.5, 1.0]);
    let shown = |index: &Index| format!("{:?}", index.search(&asked));
    assert_eq!(shown(&index), shown(&anew));
}

/// Scores of `bm25s`, similarities of numpy and their fusion, by `tests/retrieval/make_reference.py`.
#[test]
fn rankings_are_those_of_the_reference() {
    let reference = include_str!("../../../../tests/retrieval/reference.json");
    let reference: serde_json::Value = serde_json::from_str(reference).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let numbers = |value: &serde_json::Value| -> Vec<f32> {
        let numbers = list(value).into_iter();
        numbers
            .map(|number| number.as_f64().expect("a number") as f32)
            .collect()
    };
    let rows = list(&reference["rows"]);
    let mut index = Index::new(numbers(&rows[0]["vector"]).len());
    let chunks = rows.iter().map(|row| Chunk {
        start: 0,
        end: 0,
        page: None,
        vector: numbers(&row["vector"]),
        text: row["text"].as_str().expect("a text").to_owned(),
    });
    index.add(document("all", 1), chunks);
    let weights = |meaning, words| Weights { meaning, words };
    let mut compared = 0;
    for query in list(&reference["queries"]) {
        let (text, vector) = (
            query["text"].as_str().expect("a text"),
            numbers(&query["vector"]),
        );
        let words = index
            .lexical
            .search(text, 10, std::slice::from_ref(&(0..rows.len())));
        for (name, found) in [
            ("words", words),
            ("meaning", rows_of(&index, text, &vector, weights(1.0, 0.0))),
            ("both", rows_of(&index, text, &vector, weights(1.0, 1.0))),
        ] {
            let expected = list(&query[name]);
            assert_eq!(found.len(), expected.len(), "{text}, {name}");
            for ((row, score), expected) in found.iter().zip(&expected) {
                let (at, of) = (expected[0].as_u64(), expected[1].as_f64().expect("a score"));
                assert!(
                    (f64::from(*score) - of).abs() < 2e-4 * of.max(1.0),
                    "{text}, {name}: {score} {of}"
                );
                // Of equal scores either may be first.
                let tied = expected_ties(&list(&query[name]), of);
                assert!(
                    at == Some(u64::from(*row)) || tied > 1,
                    "{text}, {name}: {row} {expected}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}

/// Documents, questions with their answers, and what `rank-bm25` fused with an exact search finds, by
/// `tests/retrieval/measure_quality.py`.
#[test]
fn feature_e30_a_search_finds_no_fewer_answers_than_the_reference() {
    let measured = include_str!("../../../../tests/retrieval/quality.json");
    let measured: serde_json::Value = serde_json::from_str(measured).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let vector = |value: &serde_json::Value| -> Vec<f32> {
        let numbers = list(&value["vector"]).into_iter();
        numbers
            .map(|number| number.as_f64().expect("a number") as f32)
            .collect()
    };
    let text = |value: &serde_json::Value| value["text"].as_str().expect("a text").to_owned();
    let rows = list(&measured["rows"]);
    let vectors: Vec<Vec<f32>> = rows.iter().map(&vector).collect();
    let mut index = Index::new(vectors[0].len());
    let chunks = rows.iter().zip(&vectors).map(|(row, vector)| Chunk {
        start: 0,
        end: 0,
        page: None,
        vector: vector.clone(),
        text: text(row),
    });
    index.add(document("all", 1), chunks);
    let queries = list(&measured["queries"]);
    let (mut ours, mut reference) = (0, 0);
    for query in &queries {
        let (text, asked, answer) = (text(query), vector(query), &query["answer"]);
        let weights = |meaning, words| Weights { meaning, words };
        let found = rows_of(&index, &text, &asked, weights(1.0, 1.0));
        let best = found.iter().take(3);
        ours += usize::from(best.map(|(row, _)| json!(row)).any(|row| row == *answer));
        reference += usize::from(list(&query["both"]).contains(answer));
        // The nearest are those of a search in all vectors.
        let all = vectors.iter().zip(0u32..);
        let all = all.map(|(vector, row)| {
            let products = vector.iter().zip(&asked);
            let sum: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            (row, sum)
        });
        let mut all: Vec<(u32, f64)> = all.collect();
        all.sort_by(|one, other| other.1.total_cmp(&one.1));
        let near = rows_of(&index, &text, &asked, weights(1.0, 0.0));
        assert_eq!(near.len(), 10);
        for ((_, score), (_, expected)) in near.iter().zip(&all) {
            assert!(
                (f64::from(*score) - expected.max(0.0)).abs() < 1e-5,
                "{text}"
            );
        }
    }
    assert_eq!(queries.len(), 90);
    assert!(reference > 80, "{reference}");
    assert!(
        ours >= reference,
        "{ours} of {}, the reference {reference}",
        queries.len()
    );
}

fn expected_ties(ranking: &[serde_json::Value], score: f64) -> usize {
    let scores = ranking.iter().filter_map(|entry| entry[1].as_f64());
    scores.filter(|other| (other - score).abs() < 2e-4).count()
}

fn rows_of(index: &Index, text: &str, vector: &[f32], weights: Weights) -> Vec<(u32, f32)> {
    let mut asked = query(text, vector);
    asked.weights = weights;
    let hits = index.search(&asked);
    hits.iter().map(|hit| (hit.chunk, hit.score)).collect()
}
