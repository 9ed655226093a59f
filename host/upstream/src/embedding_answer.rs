//! Answer of an upstream to a request for embeddings: as many vectors as there were texts, each in its place, all of one
//! length, of numbers that are finite.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::limits::MAX_DIMENSIONS;
use crate::refusal::shortened;

/// Vectors in the order of the texts, and the tokens of the texts if the upstream tells.
#[derive(Debug, Default, PartialEq)]
pub struct EmbeddingAnswer {
    /// Vectors as the upstream made them.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts.
    pub prompt_tokens: Option<u32>,
}

#[derive(serde::Deserialize)]
struct Body {
    data: Vec<Item>,
    usage: Option<Counted>,
}

#[derive(serde::Deserialize)]
struct Item {
    index: usize,
    embedding: Vector,
}

#[derive(serde::Deserialize)]
struct Counted {
    prompt_tokens: Option<u32>,
}

/// Numbers in an array, or their bytes in base64.
struct Vector(Vec<f32>);

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VectorVisitor)
    }
}

struct VectorVisitor;

impl<'de> Visitor<'de> for VectorVisitor {
    type Value = Vector;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of numbers, or their bytes in base64")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vector, A::Error> {
        let mut vector = Vec::new();
        while let Some(number) = numbers.next_element::<f32>()? {
            if vector.len() == MAX_DIMENSIONS {
                return Err(too_many());
            }
            vector.push(number);
        }
        Ok(Vector(vector))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vector, E> {
        if text.len() > MAX_DIMENSIONS.saturating_mul(6) {
            return Err(too_many());
        }
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(|error| E::custom(format!("no base64: {error}")))?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            let message = format!("{} bytes are no whole numbers of 4", bytes.len());
            return Err(E::custom(message));
        }
        Ok(Vector(
            numbers
                .iter()
                .map(|four| f32::from_le_bytes(*four))
                .collect(),
        ))
    }
}

fn too_many<E: Error>() -> E {
    E::custom(format!("a vector has more than {MAX_DIMENSIONS} numbers"))
}

/// Read the answer to a request of so many texts; an error says what the server did wrong.
pub fn read_answer(body: &[u8], texts: usize) -> Result<EmbeddingAnswer, String> {
    let read: Result<Body, _> = serde_json::from_slice(body);
    let body = read.map_err(|error| {
        let told = shortened(&error.to_string());
        format!("answered with vectors that cannot be read: {told}")
    })?;
    let count = body.data.len();
    if count != texts {
        return Err(format!("answered {texts} texts with {count} vectors"));
    }
    let mut placed: Vec<Option<Vec<f32>>> = vec![None; texts];
    for Item { index, embedding } in body.data {
        match placed.get_mut(index) {
            Some(place) if place.is_none() => *place = Some(embedding.0),
            Some(_) => return Err(format!("answered with the index {index} twice")),
            None => {
                return Err(format!(
                    "answered {texts} texts with a vector of the index {index}"
                ));
            }
        }
    }
    let vectors: Vec<Vec<f32>> = placed.into_iter().flatten().collect();
    check(&vectors)?;
    Ok(EmbeddingAnswer {
        vectors,
        prompt_tokens: body.usage.and_then(|usage| usage.prompt_tokens),
    })
}

/// Refuse vectors that differ in length or have none, and numbers that are not finite.
fn check(vectors: &[Vec<f32>]) -> Result<(), String> {
    let dimensions = vectors.first().map_or(0, Vec::len);
    if dimensions == 0 {
        return Err("answered with an empty vector".to_owned());
    }
    if let Some(other) = vectors.iter().find(|vector| vector.len() != dimensions) {
        let other = other.len();
        return Err(format!(
            "answered with vectors of {dimensions} and of {other} numbers"
        ));
    }
    match vectors.iter().flatten().all(|number| number.is_finite()) {
        true => Ok(()),
        false => Err("answered with a vector that has a number that is not finite".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(body: &serde_json::Value, texts: usize) -> Result<EmbeddingAnswer, String> {
        read_answer(body.to_string().as_bytes(), texts)
    }

    #[test]
    fn vectors_come_in_the_order_of_the_texts_in_both_encodings() {
        let bytes = [0.6_f32, 0.8].map(f32::to_le_bytes).concat();
        let body = json!({"data": [
            {"index": 1, "embedding": [3, 4.0]}, {"index": 0, "embedding": STANDARD.encode(bytes)},
        ], "usage": {"prompt_tokens": 7, "total_tokens": 7}});
        let answer = read(&body, 2).expect("vectors");
        assert_eq!(answer.vectors, [[0.6, 0.8], [3.0, 4.0]]);
        assert_eq!(answer.prompt_tokens, Some(7));
        let uncounted = json!({"data": [{"index": 0, "embedding": [0.0, 0.0]}], "usage": null});
        let answer = read(&uncounted, 1).expect("a vector");
        assert_eq!(
            (answer.vectors[0].as_slice(), answer.prompt_tokens),
            (&[0.0, 0.0][..], None)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let item = |index: u64, embedding: serde_json::Value| json!({"index": index, "embedding": embedding});
        let not_a_number = STANDARD.encode(f32::NAN.to_le_bytes());
        let long = vec![0.5; MAX_DIMENSIONS + 1];
        let coded = STANDARD.encode(vec![0; 4 * (MAX_DIMENSIONS + 1) + 10_000_000]);
        for (data, words) in [
            (json!([]), "with 0 vectors"),
            (json!([item(0, json!([1.0]))]), "2 texts with 1 vectors"),
            (
                json!([item(0, json!([1.0])), item(0, json!([1.0]))]),
                "index 0 twice",
            ),
            (
                json!([item(0, json!([1.0])), item(2, json!([1.0]))]),
                "the index 2",
            ),
            (
                json!([item(0, json!([1.0])), item(1, json!([1.0, 2.0]))]),
                "1 and of 2 numbers",
            ),
            (
                json!([item(0, json!([])), item(1, json!([]))]),
                "empty vector",
            ),
            (
                json!([item(0, json!(["x"])), item(1, json!([1.0]))]),
                "cannot be read",
            ),
            (
                json!([item(0, json!([null])), item(1, json!([1.0]))]),
                "cannot be read",
            ),
            (
                json!([item(0, json!([1e300])), item(1, json!([1.0]))]),
                "cannot be read",
            ),
            (
                json!([item(0, json!(not_a_number)), item(1, json!([1.0]))]),
                "not finite",
            ),
            (
                json!([item(0, json!("AAA=")), item(1, json!([1.0]))]),
                "no whole numbers",
            ),
            (
                json!([item(0, json!("!")), item(1, json!([1.0]))]),
                "no base64",
            ),
            (
                json!([item(0, json!(long)), item(1, json!([1.0]))]),
                "more than",
            ),
            (
                json!([item(0, json!(coded)), item(1, json!([1.0]))]),
                "more than",
            ),
            (
                json!([{"embedding": [1.0]}, item(1, json!([1.0]))]),
                "`index`",
            ),
            (json!({}), "cannot be read"),
        ] {
            let error = read(&json!({"data": data}), 2).expect_err(words);
            assert!(error.contains(words), "{error} has no `{words}`");
        }
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for body in [
            &b""[..],
            b"{\"data\": [{\"index\": 0, \"embedding\": [NaN]}]}",
            b"[]",
        ] {
            let error = read_answer(body, 1).expect_err("no answer");
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn bytes_of_all_kinds_are_read_or_refused(body in any::<Vec<u8>>(), texts in 1_usize..4) {
            if let Ok(answer) = read_answer(&body, texts) {
                prop_assert_eq!(answer.vectors.len(), texts);
            }
        }
    }
}
