//! Body of a request for embeddings, in the fields that an upstream's family has.

use mortise_models::{EmbeddingInput, PromptUse, UpstreamApi, UpstreamConfig};
use serde::Serialize;

use crate::unsupported::UnsupportedSetting;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: Vec<Input<'a>>,
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncate_prompt_tokens: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(&'a str),
    Tokens(&'a [u32]),
}

/// Write the request for the vectors of some inputs, all texts or all tokens.
///
/// # Errors
/// When the upstream has no field for the instruction.
pub(crate) fn embedding_body(
    inputs: &[EmbeddingInput],
    prompt: &PromptUse,
    truncate: bool,
    config: &UpstreamConfig,
) -> Result<Vec<u8>, UnsupportedSetting> {
    let (input_type, prompt_name) = match (config.api, prompt) {
        (UpstreamApi::Mortise, PromptUse::Plain) => {
            let why = "of that server stands before its texts, and it cannot be asked for vectors without it";
            return Err(UnsupportedSetting::new("default_prompt", why));
        }
        (UpstreamApi::Mortise, PromptUse::Query) => (Some("query"), None),
        (UpstreamApi::Mortise, PromptUse::Document) => (Some("document"), None),
        (UpstreamApi::Mortise, PromptUse::Named(name)) => (None, Some(name.as_str())),
        // What others have no field for stands before the texts already.
        _ => (None, None),
    };
    let body = Body {
        model: &config.model,
        input: inputs
            .iter()
            .map(|input| match input {
                EmbeddingInput::Text(text) => Input::Text(text),
                EmbeddingInput::Tokens(ids) => Input::Tokens(ids),
            })
            .collect(),
        encoding_format: match config.api {
            // Of all servers of this API, not all have the other.
            UpstreamApi::Openai => "float",
            UpstreamApi::Vllm | UpstreamApi::LlamaServer | UpstreamApi::Mortise => "base64",
        },
        truncate_prompt_tokens: match config.api {
            UpstreamApi::Vllm | UpstreamApi::Mortise => truncate.then_some(-1),
            UpstreamApi::Openai | UpstreamApi::LlamaServer => None,
        },
        input_type,
        prompt_name,
    };
    serde_json::to_vec(&body).map_err(|error| UnsupportedSetting::new("input", error.to_string()))
}

/// Inputs in the parts that are sent one after the other: in order, at most `most` each, texts and tokens apart, which
/// few servers take in one list.
pub(crate) fn parts(
    inputs: &[EmbeddingInput],
    most: usize,
) -> impl Iterator<Item = &[EmbeddingInput]> {
    let alike = |one: &EmbeddingInput, other: &EmbeddingInput| {
        std::mem::discriminant(one) == std::mem::discriminant(other)
    };
    let runs = inputs.chunk_by(alike);
    runs.flat_map(move |run| run.chunks(most.max(1)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(text: &str) -> EmbeddingInput {
        EmbeddingInput::Text(text.to_owned())
    }

    fn config(api: UpstreamApi) -> UpstreamConfig {
        let urls = vec!["http://a/v1".parse().expect("a base URL")];
        UpstreamConfig {
            api,
            ..UpstreamConfig::new(urls, "m")
        }
    }

    #[test]
    fn each_family_gets_the_fields_that_it_has() {
        let body = |api, prompt: &PromptUse| {
            let body = embedding_body(&[text("a")], prompt, true, &config(api));
            serde_json::from_slice::<Value>(&body.expect("a body")).expect("JSON")
        };
        let named = PromptUse::Named("task".to_owned());
        assert_eq!(
            body(UpstreamApi::Openai, &PromptUse::Plain),
            json!({"model": "m", "input": ["a"], "encoding_format": "float"})
        );
        assert_eq!(
            body(UpstreamApi::Vllm, &PromptUse::Plain),
            json!({"model": "m", "input": ["a"], "encoding_format": "base64", "truncate_prompt_tokens": -1})
        );
        let query = body(UpstreamApi::Mortise, &PromptUse::Query);
        assert_eq!(
            (&query["input_type"], &query["prompt_name"]),
            (&json!("query"), &Value::Null)
        );
        assert_eq!(body(UpstreamApi::Mortise, &named)["prompt_name"], "task");
        let usual = body(UpstreamApi::Mortise, &PromptUse::Usual);
        assert!(usual.get("input_type").is_none() && usual.get("prompt_name").is_none());
        let plain = embedding_body(&[], &PromptUse::Plain, false, &config(UpstreamApi::Mortise));
        assert!(plain.is_err());
    }

    #[test]
    fn parts_are_bounded_and_of_one_kind_and_in_order() {
        let tokens = EmbeddingInput::Tokens(vec![1]);
        let inputs = [text("a"), text("b"), text("c"), tokens.clone(), text("d")];
        let parts: Vec<&[EmbeddingInput]> = parts(&inputs, 2).collect();
        assert_eq!(
            parts,
            [&inputs[..2], &inputs[2..3], &inputs[3..4], &inputs[4..]]
        );
    }
}
