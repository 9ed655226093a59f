//! `POST /v1/responses/compact`: a long conversation as its messages and a summary that stands for the rest.
//!
//! The shape is OpenAI's: what users and operators said, word for word, then one `compaction` item in the
//! place of answers, reasoning, calls and their results. The model that is asked writes the summary.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response, reserve_more};
use mortise_service::{
    ChatPrompt, Delta, Event, Prompt, PromptEnd, RequestFields, TemplateArguments, Usage,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::assembly::usage_body;
use super::checks::check_tier;
use super::items::{input_bytes, of_input, sealed};
use super::messages::conversation;
use super::{COMPACT, history};
use crate::answering::Answering;
use crate::fields::{FieldPath, FieldReader, RouteFields, missing, words};
use crate::hints;
use crate::ids::{Ids, now};
use crate::ignored::add_headers;
use crate::receive::{ReceivedRequest, receive};
use crate::start::start;
use crate::state::ApiState;
use crate::stored::account;
use crate::unsupported::Unsupported;

/// The last message of the prompt.
const TASK: &str = "Summarize the conversation so far, so that it can be continued without the earlier answers. \
    Keep facts, decisions, results of tools, names, numbers, and what is still to be done. \
    Answer with the summary only.";

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "hints are checked for type and length, and change nothing else"
)]
struct Basics {
    model: String,
    input: Option<Value>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<String>,
    prompt_cache_options: Option<Value>,
    prompt_cache_retention: Option<String>,
    service_tier: Option<String>,
    image: Option<Images>,
}

/// Treatment of images.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Images {
    context_compression: Option<Compression>,
}

words! {
    /// Compression of images, which are given to the model as they are.
    Compression {
        Auto = "auto",
        Enabled = "enabled",
        Disabled = "disabled",
    }
}

/// Refuse compression that a caller insists on.
fn check_images(images: Option<Images>, reader: &mut FieldReader) -> Result<(), Problem> {
    match images.and_then(|images| images.context_compression) {
        None | Some(Compression::Auto | Compression::Disabled) => Ok(()),
        Some(Compression::Enabled) => {
            let path = FieldPath::from("image").key("context_compression");
            reader.unsupported(&path, "images are given to the model as they are")
        }
    }
}

/// The fields of a request, for the contract.
pub(super) fn contract_fields(mode: Unsupported) -> RouteFields {
    let objects = json!({"type": "array", "items": {"type": "object"}});
    let input = json!({"anyOf": [{"type": "string"}, objects, {"type": "null"}]});
    RouteFields::new(mode)
        .with::<Basics>()
        .narrowed("input", input)
}

/// A request, translated.
struct CompactCall {
    model: String,
    instructions: Option<String>,
    input: Vec<Value>,
    previous: Option<String>,
    ignored: Vec<String>,
}

fn parse(
    object: Map<String, Value>,
    mode: Unsupported,
    ids: &mut Ids,
) -> Result<CompactCall, Problem> {
    hints::check(&object)?;
    let mut reader = FieldReader::new(object, mode);
    let basics: Basics = reader.read()?;
    check_images(basics.image, &mut reader)?;
    check_tier(basics.service_tier.as_deref(), &mut reader)?;
    let path = FieldPath::from("input");
    let input = match basics.input {
        Some(input) => of_input(&path, input, ids)?,
        None if basics.previous_response_id.is_some() => Vec::new(),
        None => return Err(missing(&path)),
    };
    Ok(CompactCall {
        model: basics.model,
        instructions: basics.instructions,
        input,
        previous: basics.previous_response_id,
        ignored: reader.finish(|_| false)?,
    })
}

/// Answer with the compacted conversation. Nothing is stored.
pub(super) async fn compact(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        mut reserved,
        account: known,
    } = receive(&state, &context, COMPACT, request).await?;
    let mut ids = Ids::of(&parts);
    let call = parse(object, state.unsupported, &mut ids)?;
    let owner = account(&state, &context, COMPACT, &parts, known).await?;
    let previous = call.previous.as_deref();
    let mut all = history::before(&state, &owner, previous, None, &mut reserved).await?;
    reserve_more(&mut reserved, input_bytes(&call.input))?;
    let input = history::resolved(&all, call.input)?;
    let own = input.len();
    all.extend(input);
    // The items stay until the summary is there.
    let _kept = reserved.split(input_bytes(&all));
    let fields = fields(&call.model, call.instructions.as_deref(), &all, own)?;
    let started = start(&state, &context, COMPACT, &parts, reserved, vec![fields]).await?;
    let (summary, usage) = summary(started.answering).await?;
    let mut output: Vec<Value> = all.into_iter().filter(is_kept).collect();
    output.push(json!({
        "id": ids.make("cmp_"),
        "type": "compaction",
        "encrypted_content": sealed(&summary),
    }));
    let body = json!({
        "id": ids.make("resp_"),
        "object": "response.compaction",
        "created_at": now(),
        "model": started.model,
        "output": output,
        "usage": usage_body(usage),
    });
    let mut response = json_response(StatusCode::OK, &body);
    add_headers(&mut response, &started.headers, &call.ignored);
    Ok(response)
}

/// The conversation with the task behind it.
fn fields(
    model: &str,
    instructions: Option<&str>,
    all: &[Value],
    own: usize,
) -> Result<RequestFields, Problem> {
    let task = json!({
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": TASK}],
    });
    let asked: Vec<&Value> = all.iter().chain([&task]).collect();
    Ok(RequestFields {
        model: model.to_owned(),
        prompt: Prompt::Chat(ChatPrompt {
            conversation: conversation(instructions, &asked, own + 1)?,
            arguments: TemplateArguments::default(),
            template: None,
            end: PromptEnd::AssistantTurn,
        }),
        ..RequestFields::default()
    })
}

/// The model's answer without its reasoning.
async fn summary(mut answering: Answering) -> Result<(String, Usage), Problem> {
    let mut summary = String::new();
    loop {
        match answering.next().await {
            Event::Delta {
                delta: Delta::Content(text),
                ..
            } => summary.push_str(&text),
            Event::Completed { usage } if !summary.trim().is_empty() => {
                return Ok((summary, usage));
            }
            Event::Completed { .. } => {
                return Err(Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "empty_summary",
                    "the model wrote no summary; send the request again, or name another model",
                ));
            }
            Event::Failed(error) => return Err(answering.failed(error)),
            _ => {}
        }
    }
}

/// Messages of users, operators and developers stay word for word.
fn is_kept(item: &Value) -> bool {
    item["type"] == "message" && item["role"] != "assistant"
}
