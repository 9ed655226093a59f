//! The body of `POST /v1/messages` and of `/v1/messages/count_tokens` as fields of a request.

use http::StatusCode;
use mortise_http::Problem;
use mortise_service::{
    ChatPrompt, ChosenTemplate, ContentConstraint, GrammarSource, Prompt, PromptEnd,
    ReasoningBudget, RequestFields, TemplateArguments,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::blocks::CacheControl;
use super::messages::AnthropicMessages;
use super::tools::AnthropicToolFields;
use crate::fields::{
    FieldPath, FieldReader, RouteFields, missing, refused_fields, words, wrong_type,
};
use crate::unsupported::Unsupported;

/// Least budget of thinking, as at Anthropic.
const LEAST_BUDGET: u32 = 1024;
/// Characters of `metadata.user_id`.
const MAX_USER_ID: usize = 512;

/// A request, translated.
#[derive(Debug)]
pub(super) struct MessageCall {
    pub(super) fields: RequestFields,
    pub(super) thinking: ThinkingShape,
    /// Fields left out of account, if the operator allows that.
    pub(super) ignored: Vec<String>,
}

/// Part of the model's thinking that the answer shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ThinkingShape {
    /// No part: the caller did not ask for thinking.
    #[default]
    None,
    /// Blocks without their text.
    Omitted,
    /// Blocks with their text.
    Shown,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "prefixes are cached without being asked")]
struct Basics {
    model: String,
    cache_control: Option<CacheControl>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    context_management: Option<ContextManagement>,
    chat_template: Option<String>,
    allow_remote: Option<bool>,
}

/// Fields that only `POST /v1/messages` has.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "both service tiers are the one that this server has"
)]
struct Generation {
    max_tokens: Option<u32>,
    stream: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    stop_sequences: Option<Vec<String>>,
    metadata: Option<Metadata>,
    service_tier: Option<Tier>,
}

words! {
    /// Service tier of a request.
    Tier {
        Auto = "auto",
        Standard = "standard_only",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Metadata {
    user_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Thinking {
    #[serde(rename = "type")]
    kind: ThinkingKind,
    budget_tokens: Option<u32>,
    display: Option<Display>,
}

words! {
    /// Mode of the model's thinking before the answer.
    ThinkingKind {
        Enabled = "enabled",
        Disabled = "disabled",
        Adaptive = "adaptive",
    }
}

words! {
    /// Part of the thinking that is shown.
    Display {
        Summarized = "summarized",
        Omitted = "omitted",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct OutputConfig {
    effort: Option<Effort>,
    format: Option<Format>,
}

words! {
    /// Extent of thinking, which templates know by the same words.
    Effort {
        Low = "low",
        Medium = "medium",
        High = "high",
        Xhigh = "xhigh",
        Max = "max",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "there is one type of formats")]
struct Format {
    #[serde(rename = "type")]
    kind: FormatKind,
    schema: Option<Value>,
}

words! {
    /// Type of a format.
    FormatKind {
        JsonSchema = "json_schema",
    }
}

/// Edits of a long conversation. Those that would drop something are refused.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ContextManagement {
    edits: Option<Vec<Edit>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Edit {
    #[serde(rename = "type")]
    kind: String,
    keep: Option<Value>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        container: "this server has no containers",
        mcp_servers: "this server connects to no MCP servers; run the tools yourself",
        inference_geo: "this server computes where it stands",
        speed: "this server has one speed",
        diagnostics: "prompts are not compared; `usage.cache_read_input_tokens` tells of the cache",
        user_profile_id: "this server has no user profiles",
        workspace_id: "this server has no workspaces",
    }
}

/// The fields of a message, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    count_fields(mode).with::<Generation>()
}

/// The fields of a message whose tokens are counted, for the contract.
pub(super) fn count_fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<Basics>()
        .with::<AnthropicMessages>()
        .with::<AnthropicToolFields>()
        .refusing(Refused::REASONS)
}

/// Translate the body of `POST /v1/messages`.
pub(super) fn parse(object: Map<String, Value>, mode: Unsupported) -> Result<MessageCall, Problem> {
    refuse_thread(&object)?;
    let mut reader = FieldReader::new(object, mode);
    let generation: Generation = reader.read()?;
    let max_tokens = generation.max_tokens;
    let max_tokens = max_tokens.ok_or_else(|| missing(&FieldPath::from("max_tokens")))?;
    if max_tokens == 0 {
        return Err(Problem::invalid(
            "max_tokens",
            "`max_tokens` must be at least 1; it is 0",
        ));
    }
    if let Some(above) = generation
        .temperature
        .filter(|value| !(0.0..=1.0).contains(value))
    {
        let text = format!("`temperature` must be between 0 and 1; it is {above}");
        return Err(Problem::invalid("temperature", text));
    }
    if let Some(id) = generation.metadata.and_then(|metadata| metadata.user_id) {
        check_user_id(&id)?;
    }
    let fields = RequestFields {
        max_tokens: Some(max_tokens),
        max_tokens_fit: true,
        stream: generation.stream.unwrap_or(false),
        temperature: generation.temperature,
        top_p: generation.top_p,
        top_k: generation.top_k,
        stop: generation.stop_sequences.unwrap_or_default(),
        ..RequestFields::default()
    };
    prompt(reader, fields)
}

/// Refuse to keep a conversation, in the way by which clients know that they must send all of it themselves. It is never
/// left out of account: the next request would hold only what is new.
fn refuse_thread(object: &Map<String, Value>) -> Result<(), Problem> {
    match object.get("thread") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => {
            let text = "`thread` is not supported: this server keeps no threads; send the whole conversation";
            Err(
                Problem::new(StatusCode::BAD_REQUEST, "thread_unsupported_request", text)
                    .at("thread"),
            )
        }
    }
}

/// Translate the body of `POST /v1/messages/count_tokens`.
pub(super) fn parse_count(
    object: Map<String, Value>,
    mode: Unsupported,
) -> Result<MessageCall, Problem> {
    prompt(FieldReader::new(object, mode), RequestFields::default())
}

/// Read what both routes have, and end.
fn prompt(mut reader: FieldReader, mut fields: RequestFields) -> Result<MessageCall, Problem> {
    let basics: Basics = reader.read()?;
    let messages: AnthropicMessages = reader.read()?;
    let tools: AnthropicToolFields = reader.read()?;
    tools.write(&mut reader, &mut fields)?;
    let mut arguments = Map::new();
    if let Some(tokens) = basics.thinking.as_ref().and_then(|it| it.budget_tokens) {
        // Clients send one to every model: where none can be kept, it is a wish.
        fields.reasoning_budget = Some(ReasoningBudget {
            field: "thinking.budget_tokens",
            tokens,
            required: false,
        });
    }
    let thinking = thinking(basics.thinking, fields.max_tokens, &mut arguments)?;
    if let Some(output) = basics.output_config {
        if let Some(effort) = output.effort {
            arguments.insert("reasoning_effort".to_owned(), json!(effort.word()));
        }
        fields.constraint = output.format.map(constraint).transpose()?;
    }
    if let Some(management) = basics.context_management {
        check_edits(management.edits.unwrap_or_default(), &mut reader)?;
    }
    let (conversation, continued) = messages.translate(&mut reader)?;
    let asked = arguments.get("enable_thinking").and_then(Value::as_bool);
    fields.model = basics.model;
    fields.allow_remote = basics.allow_remote.unwrap_or(false);
    fields.prompt = Prompt::Chat(ChatPrompt {
        conversation,
        arguments: TemplateArguments::new(arguments)
            .map_err(|error| Problem::invalid("thinking", error.to_string()))?
            .thinking(asked),
        template: ChosenTemplate::of("chat_template", basics.chat_template),
        end: match continued {
            true => PromptEnd::OpenMessage,
            false => PromptEnd::AssistantTurn,
        },
    });
    reader.read::<Refused>()?.refuse(&mut reader)?;
    Ok(MessageCall {
        fields,
        thinking,
        ignored: reader.finish(|_| false)?,
    })
}

/// Tell the template whether and how long to think. Without `thinking` the model does as it does by
/// itself, and the answer does not show it.
fn thinking(
    thinking: Option<Thinking>,
    max_tokens: Option<u32>,
    arguments: &mut Map<String, Value>,
) -> Result<ThinkingShape, Problem> {
    let Some(thinking) = thinking else {
        return Ok(ThinkingShape::None);
    };
    arguments.insert(
        "enable_thinking".to_owned(),
        json!(thinking.kind != ThinkingKind::Disabled),
    );
    let path = FieldPath::from("thinking").key("budget_tokens");
    match (thinking.kind, thinking.budget_tokens) {
        (ThinkingKind::Enabled, None) => return Err(missing(&path)),
        (ThinkingKind::Enabled, Some(budget)) => {
            let most = max_tokens.unwrap_or(u32::MAX);
            if budget < LEAST_BUDGET || budget >= most {
                let text = format!(
                    "`{path}` must be at least {LEAST_BUDGET} and less than `max_tokens`; it is \
                     {budget}"
                );
                return Err(Problem::invalid(path.to_string(), text));
            }
            arguments.insert("thinking_budget".to_owned(), json!(budget));
        }
        (_, Some(_)) => {
            let text = format!("`{path}` goes with the type `enabled` only");
            return Err(Problem::invalid(path.to_string(), text));
        }
        (_, None) => {}
    }
    Ok(match (thinking.kind, thinking.display) {
        (ThinkingKind::Disabled, _) => ThinkingShape::None,
        (_, Some(Display::Omitted)) => ThinkingShape::Omitted,
        (_, Some(Display::Summarized) | None) => ThinkingShape::Shown,
    })
}

fn constraint(format: Format) -> Result<ContentConstraint, Problem> {
    let path = FieldPath::from("output_config").key("format");
    let inner = path.key("schema");
    match format.schema {
        None => Err(missing(&inner)),
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(ContentConstraint::new(
            path.to_string(),
            GrammarSource::JsonSchema(schema.to_string()),
        )),
        Some(other) => Err(wrong_type(
            &inner,
            "a JSON Schema, an object or a boolean",
            &other,
        )),
    }
}

/// Edits that keep everything are kept; others would change the prompt.
fn check_edits(edits: Vec<Edit>, reader: &mut FieldReader) -> Result<(), Problem> {
    let list = FieldPath::from("context_management").key("edits");
    for (at, edit) in edits.into_iter().enumerate() {
        let keeps_all = edit.keep.as_ref().is_some_and(|keep| keep == "all");
        if edit.kind.starts_with("clear_thinking_") && keeps_all {
            continue;
        }
        let why = "this server drops nothing from a conversation; send what the model should see";
        reader.unsupported(&list.index(at), why)?;
    }
    Ok(())
}

fn check_user_id(id: &str) -> Result<(), Problem> {
    let length = id.chars().count();
    if length <= MAX_USER_ID && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let path = "metadata.user_id";
    Err(Problem::invalid(
        path,
        format!(
            "`{path}` has {length} characters; at most {MAX_USER_ID} are allowed, and no control \
             characters"
        ),
    ))
}
