//! Vectors of texts in OpenAI's shape.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::retrieval;

#[test]
fn feature_e4_texts_and_tokens_become_vectors_in_every_shape() {
    let server = retrieval::server("");
    let embed = |input: Value, more: Value| {
        let mut body = json!({"model": "embeds", "input": input});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        server.post("/v1/embeddings", &body)
    };
    let vector = |value: &Value| {
        let list = value["embedding"].as_array().expect("a vector").iter();
        list.map(|number| number.as_f64().expect("a number") as f32)
            .collect::<Vec<f32>>()
    };
    let one = embed(json!("The wind."), json!({})).ok();
    assert_eq!(
        (&one["object"], &one["model"]),
        (&json!("list"), &json!("embeds"))
    );
    assert_eq!(one["data"][0]["object"], "embedding");
    let whole = vector(&one["data"][0]);
    assert_eq!(one["usage"]["total_tokens"], one["usage"]["prompt_tokens"]);

    // Lists keep their order, and texts and their tokens are the same.
    let tokens = json!({"model": "embeds", "prompt": "The wind."});
    let tokens = server.post("/tokenize", &tokens).ok()["tokens"].clone();
    let both = embed(json!(["Rain.", "The wind."]), json!({})).ok();
    assert_eq!(
        (&both["data"][0]["index"], &both["data"][1]["index"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(vector(&both["data"][1]), whole);
    for input in [tokens.clone(), json!([tokens])] {
        assert_eq!(vector(&embed(input, json!({})).ok()["data"][0]), whole);
    }

    let coded = embed(json!("The wind."), json!({"encoding_format": "base64"})).ok();
    let bytes = coded["data"][0]["embedding"].as_str().expect("a text");
    let bytes = STANDARD.decode(bytes).expect("base64");
    let numbers = bytes
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().expect("four")));
    assert!(numbers.eq(whole.iter().copied()));

    // A part of a vector has the length of one again.
    let part = vector(&embed(json!("The wind."), json!({"dimensions": 16})).ok()["data"][0]);
    let length = |vector: &[f32]| {
        vector
            .iter()
            .map(|number| number * number)
            .sum::<f32>()
            .sqrt()
    };
    let scale = length(&whole[..16]);
    assert_eq!(part.len(), 16);
    for (got, from) in part.iter().zip(&whole) {
        assert!((got - from / scale).abs() < 1e-5, "{got} from {from}");
    }
    for (input, more, param) in [
        (json!([]), json!({}), "input"),
        (json!("x"), json!({"dimensions": 0}), "dimensions"),
        (
            json!("x"),
            json!({"encoding_format": "hex"}),
            "encoding_format",
        ),
    ] {
        let refused = embed(input, more);
        assert_eq!(
            (refused.status(), &refused.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
}
