//! Log-probabilities of prompts, as vLLM writes them.

use mortise_service::PromptToken;
use serde_json::{Map, Value, json};

/// JSON has no infinity; OpenAI writes this for a token that could not have been chosen.
const LEAST_LOGPROB: f32 = -9999.0;

pub(super) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob
    } else {
        LEAST_LOGPROB
    }
}

/// A token of a prompt: null for the first, and for any other an object by the ids of the likeliest `top` tokens and of
/// the token itself.
pub(super) fn scores(token: &PromptToken, top: u32) -> Value {
    let Some(scores) = &token.scores else {
        return Value::Null;
    };
    let entry = |shown: &str, logprob: f32, rank: u32| json!({"logprob": finite(logprob), "rank": rank, "decoded_token": shown});
    let mut all = Map::new();
    for ((id, shown, logprob), rank) in scores.top.iter().zip(1..=top) {
        all.insert(id.to_string(), entry(shown, *logprob, rank));
    }
    let own = entry(&token.token, scores.logprob, scores.rank);
    all.insert(token.id.to_string(), own);
    Value::Object(all)
}
