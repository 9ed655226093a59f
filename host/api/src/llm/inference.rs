//! `POST /api/v1/llm/inference`: the answer to a prompt.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{
    Capability, ChatPrompt, Conversation, Message, Prompt, PromptEnd, RequestFields, Role,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::{Spoken, whole};
use super::{INFERENCE, Llm};
use crate::fields::{FieldPath, FieldReader, RouteFields, TextOrTexts, missing};
use crate::receive::{ReceivedRequest, receive};
use crate::start::start;
use crate::state::ApiState;
use crate::stream::stream_response;
use crate::unsupported::Unsupported;

/// Most tokens of an answer where the caller does not say.
pub(super) const DEFAULT_MAX_TOKENS: u32 = 512;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct InferenceFields {
    prompt: String,
    model: Option<String>,
    lora_adapter: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    stop_sequences: Option<TextOrTexts>,
    stream: Option<bool>,
    allow_remote: Option<bool>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<InferenceFields>()
}

/// `POST /api/v1/llm/inference`
pub(super) async fn inference(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let state = &llm.api;
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(state, &context, INFERENCE, request).await?;
    let fields = parse(object, || sole(state, Capability::Generate))?;
    let (stream, adapter) = (fields.stream, fields.lora_adapter.clone());
    let started = start(state, &context, INFERENCE, &parts, reserved, vec![fields]).await;
    let started = started.map_err(renamed)?;
    let spoken = Spoken::new(&started.model, adapter, began).cached(started.cache_hit);
    let mut response = if stream {
        stream_response(started.answering, spoken, state.http.heartbeat)
    } else {
        let object = whole(started.answering, spoken).await;
        json_response(StatusCode::OK, &object.map_err(renamed)?)
    };
    append_headers(response.headers_mut(), &started.headers);
    Ok(response)
}

/// Translate a body. `sole` names the model that a body without one means.
fn parse(
    object: Map<String, Value>,
    sole: impl FnOnce() -> Option<String>,
) -> Result<RequestFields, Problem> {
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: InferenceFields = reader.read()?;
    reader.finish(|_| false)?;
    let model = fields.model.or_else(sole);
    let user = Message::text(Role::User, fields.prompt);
    Ok(RequestFields {
        model: model.ok_or_else(|| missing(&FieldPath::from("model")))?,
        lora_adapter: fields.lora_adapter,
        allow_remote: fields.allow_remote.unwrap_or(false),
        prompt: chat(vec![user])?,
        max_tokens: Some(fields.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
        max_tokens_fit: fields.max_tokens.is_none(),
        temperature: fields.temperature,
        top_p: fields.top_p,
        top_k: fields.top_k,
        stop: fields.stop_sequences.unwrap_or_default().0,
        stream: fields.stream.unwrap_or(false),
        ..RequestFields::default()
    })
}

/// Messages as a prompt that the chat template renders.
pub(super) fn chat(messages: Vec<Message>) -> Result<Prompt, Problem> {
    let wrong = |error: String| Problem::invalid("prompt", error);
    let conversation = Conversation::new(messages).map_err(|error| wrong(error.to_string()))?;
    Ok(Prompt::Chat(ChatPrompt {
        conversation,
        arguments: Default::default(),
        template: None,
        end: PromptEnd::AssistantTurn,
    }))
}

/// Name of the model that a body without one means: the only one that can do this.
pub(super) fn sole(state: &ApiState, what: Capability) -> Option<String> {
    let models = state.service.models();
    let can = models.iter().filter(|model| {
        let loaded = model.loaded.as_ref();
        let capable = loaded.is_some_and(|loaded| loaded.model.capabilities().contains(&what));
        capable && !model.listing.hidden
    });
    let mut names = can.map(|model| model.listing.name.clone());
    match (names.next(), names.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// A problem under the names that fields have in this dialect.
pub(super) fn renamed(mut problem: Problem) -> Problem {
    let rest = problem
        .param
        .as_deref()
        .and_then(|param| param.strip_prefix("stop"));
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('['));
    if let Some(rest) = rest {
        let path = format!("stop_sequences{rest}");
        problem.message = format!("`{path}`: {}", problem.message).into_boxed_str();
        problem.param = Some(path);
    }
    problem
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<RequestFields, Problem> {
        let Value::Object(body) = body else {
            panic!("a body is an object");
        };
        parse(body, || Some("only".to_owned()))
    }

    #[test]
    fn feature_r7_fields_and_defaults_are_those_of_the_api() {
        let fields = read(json!({
            "prompt": "What is ThemisDB?", "model": "mistral-7b", "max_tokens": 100, "temperature": 0.7,
            "top_p": 0.9, "top_k": 40, "stop_sequences": ["\n\n", "END"], "stream": true,
        }));
        let fields = fields.expect("valid");
        assert_eq!((fields.model.as_str(), fields.stream), ("mistral-7b", true));
        assert_eq!((fields.max_tokens, fields.top_k), (Some(100), Some(40)));
        assert_eq!((fields.temperature, fields.top_p), (Some(0.7), Some(0.9)));
        assert_eq!(fields.stop, ["\n\n", "END"]);
        assert!(!fields.max_tokens_fit);
        let fields = read(json!({"prompt": "p"})).expect("valid");
        assert_eq!((fields.model.as_str(), fields.stream), ("only", false));
        assert_eq!(fields.max_tokens, Some(512));
        // The default fits the context, as a limit that nobody asked for.
        assert!(fields.max_tokens_fit);
        let adapted = read(json!({"prompt": "p", "lora_adapter": "x"})).expect("valid");
        assert_eq!(adapted.lora_adapter.as_deref(), Some("x"));
        let unknown = read(json!({"prompt": "p", "stop": "x"})).expect_err("unknown");
        assert!(
            unknown.text().contains("unknown field `stop`"),
            "{}",
            unknown.text()
        );
        let stop = renamed(Problem::invalid("stop[1]", "it is empty"));
        assert_eq!(stop.param.as_deref(), Some("stop_sequences[1]"));
    }
}
