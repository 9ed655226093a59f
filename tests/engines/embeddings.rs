//! Embeddings by llama-server, behind mortise.

use serde_json::{Value, json};

use crate::support::{Server, example};
use crate::{LlamaServer, remote};

const EMBEDDINGS: &str = "/v1/embeddings";

/// Arguments of a llama-server that makes embeddings: the last row of a text.
const EMBEDS: [&str; 3] = ["--embeddings", "--pooling", "last"];

/// llama-server, and a mortise with it as `remote` beside the same model in its own engine, as `own`.
fn both() -> Option<(LlamaServer, Server)> {
    let there = LlamaServer::start_with(&EMBEDS)?;
    let demo = example::root().join("examples/demo-model/model");
    let own = format!("[[models]]\nname = \"own\"\npath = {demo:?}\npooling = \"last\"\n");
    let server = Server::configured(&(remote(&there, "", "capability = \"embed\"") + &own));
    Some((there, server))
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let rows = answer["data"].as_array().expect("rows").iter();
    rows.map(|row| {
        let numbers = row["embedding"].as_array().expect("a vector").iter();
        numbers
            .map(|number| number.as_f64().expect("a number") as f32)
            .collect()
    })
    .collect()
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

#[test]
fn vectors_are_those_that_llama_server_gives_directly() {
    let Some((there, server)) = both() else {
        return;
    };
    for input in [json!("The wind."), json!([5, 6, 7])] {
        let body = json!({"model": "remote", "input": input});
        let through = server.post(EMBEDDINGS, &body).ok();
        let direct = there.post(EMBEDDINGS, &body).ok();
        assert_eq!(vectors(&through), vectors(&direct), "{input}");
        assert_eq!(through["usage"], direct["usage"], "{input}");
    }
    let part = json!({"model": "remote", "input": "The wind.", "dimensions": 16});
    assert_eq!(vectors(&server.post(EMBEDDINGS, &part).ok())[0].len(), 16);
}

#[test]
fn vectors_of_tokens_are_those_of_our_own_engine() {
    let Some((_there, server)) = both() else {
        return;
    };
    let tokens = |text: &str| {
        let body = json!({"model": "own", "prompt": text, "add_special_tokens": false});
        server.post("/tokenize", &body).ok()["tokens"].clone()
    };
    let inputs = json!([
        tokens("The wind."),
        tokens("It rains in the north."),
        tokens("A zebra.")
    ]);
    let of = |model: &str| {
        let body = json!({"model": model, "input": inputs});
        vectors(&server.post(EMBEDDINGS, &body).ok())
    };
    let (remote, own) = (of("remote"), of("own"));
    for (one, other) in remote.iter().zip(&own) {
        let cosine = cosine(one, other);
        assert!(cosine > 0.9999, "{cosine}");
    }
    assert!(cosine(&remote[0], &remote[2]) < 0.999, "texts differ");
}

#[test]
fn a_text_that_is_too_long_for_llama_server_is_refused() {
    let Some((_there, server)) = both() else {
        return;
    };
    // More of them than failures that a breaker waits for: they are no failures.
    for _ in 0..6 {
        let body = json!({"model": "remote", "input": "wind ".repeat(5000)});
        let refused = server.post(EMBEDDINGS, &body);
        let told = refused.text();
        assert_eq!(refused.status(), 400, "{told}");
        assert_eq!(
            refused.json()["error"]["code"],
            "context_length_exceeded",
            "{told}"
        );
    }
    let body = json!({"model": "remote", "input": "The wind."});
    server.post(EMBEDDINGS, &body).ok();
}
