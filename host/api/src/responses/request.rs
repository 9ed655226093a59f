//! `POST /v1/responses`: from wire JSON to the service's fields, and what of it the response repeats.

use mortise_http::Problem;
use mortise_service::{
    BeamFields, ChosenTemplate, ContentConstraint, EarlyStopping, GrammarSource, RequestFields,
    TemplateArguments, ToolName,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::checks::check_tier;
use super::echo::{echoed_tool, repeated};
use super::file_search::Wanted;
use super::items;
use super::tools;
use crate::fields::{
    FieldPath, FieldReader, RouteFields, TextOrTexts, missing, refused_fields, words, wrong_type,
};
use crate::ids::Ids;
use crate::labels;
use crate::unsupported::Unsupported;

/// Values of `include`. Of what tools that are not here would give, there is nothing to include.
const INCLUDABLE: [&str; 8] = [
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// A request, translated, without the conversation that it continues.
#[derive(Debug)]
pub(super) struct ResponseCall {
    /// Fields without a prompt.
    pub(super) fields: RequestFields,
    /// Arguments of the chat template.
    pub(super) arguments: TemplateArguments,
    /// Chat template that the request chooses.
    pub(super) template: Option<ChosenTemplate>,
    pub(super) instructions: Option<String>,
    /// Items of the request itself, with ids.
    pub(super) input: Vec<Value>,
    pub(super) previous: Option<String>,
    pub(super) conversation: Option<String>,
    pub(super) store: bool,
    pub(super) background: bool,
    /// Items may be left out where the context has no room.
    pub(super) truncates: bool,
    pub(super) shape: ResponseShape,
    /// Search in documents.
    pub(super) file_search: Option<Wanted>,
    /// Fields of the response that repeat those of the request.
    pub(super) echo: Map<String, Value>,
    /// Fields left out of account, if the operator allows that.
    pub(super) ignored: Vec<String>,
}

/// Options of the caller for the shape of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponseShape {
    pub(super) logprobs: bool,
    pub(super) encrypted: bool,
    /// Results of searches.
    pub(super) results: bool,
    pub(super) obfuscate: bool,
    /// Timers of the request, which OpenAI does not have.
    pub(super) metrics: bool,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "labels and hints are repeated as they were given, and change nothing else"
)]
struct Basics {
    model: Option<String>,
    input: Option<Value>,
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    max_tool_calls: Option<u32>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_logprobs: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    store: Option<bool>,
    background: Option<bool>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    metadata: Option<Map<String, Value>>,
    parallel_tool_calls: Option<bool>,
    include: Option<Vec<String>>,
    truncation: Option<Truncation>,
    reasoning: Option<Reasoning>,
    text: Option<TextOptions>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    prompt_cache_key: Option<String>,
    prompt_cache_options: Option<Value>,
    prompt_cache_retention: Option<String>,
    safety_identifier: Option<String>,
    user: Option<String>,
    service_tier: Option<String>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
}

/// Fields that OpenAI does not have.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Further {
    messages: Option<Value>,
    decoding: Option<Decoding>,
    allow_remote: Option<bool>,
    thinking: Option<Thinking>,
    fairness_key: Option<String>,
    source_lang_code: Option<String>,
    target_lang_code: Option<String>,
    response_format: Option<Value>,
    metrics: Option<bool>,
    server_tools: Option<TextOrTexts>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    top_k: Option<u32>,
    min_p: Option<f64>,
    seed: Option<i64>,
    repetition_penalty: Option<f64>,
    stop: Option<TextOrTexts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct StreamOptions {
    include_obfuscation: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Reasoning {
    effort: Option<Effort>,
    summary: Option<Summary>,
    generate_summary: Option<Summary>,
}

words! {
    /// Extent of reasoning, which templates know by the same words.
    Effort {
        None = "none",
        Minimal = "minimal",
        Low = "low",
        Medium = "medium",
        High = "high",
        Xhigh = "xhigh",
        Max = "max",
    }
}

words! {
    /// Summary of the reasoning. All of it is given, so that each of these is honoured.
    Summary {
        Auto = "auto",
        Concise = "concise",
        Detailed = "detailed",
    }
}

words! {
    /// Treatment of conversations that are longer than the context.
    Truncation {
        Auto = "auto",
        Disabled = "disabled",
    }
}

words! {
    /// Reasoning on or off, where the template can switch it.
    Thinking {
        Default = "default",
        Enabled = "enabled",
        Disabled = "disabled",
    }
}

words! {
    /// Length of answers, which templates know by the same words.
    Verbosity {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct TextOptions {
    format: Option<Map<String, Value>>,
    verbosity: Option<Verbosity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Decoding {
    beam_size: Option<u32>,
    top_k: Option<u32>,
    top_p: Option<f64>,
    temperature: Option<f64>,
    repetition_penalty: Option<f64>,
    max_tokens: Option<u32>,
    stop: Option<TextOrTexts>,
}

refused_fields! {
    /// Fields of OpenAI that cannot be honoured.
    Refused {
        prompt: "this server stores no prompt templates",
        context_management: "send `truncation` as `auto` instead",
        moderation: "this server has no moderation model",
    }
}

/// The fields of a request, for the contract. Items and tools are read by code of their own.
pub(super) fn contract_fields(mode: Unsupported) -> RouteFields {
    let objects = || json!({"type": "array", "items": {"type": "object"}});
    let input = json!({"anyOf": [{"type": "string"}, objects(), {"type": "null"}]});
    let object = || json!({"type": "object"});
    let named = json!({"anyOf": [{"type": "string"}, object(), {"type": "null"}]});
    RouteFields::new(mode)
        .with::<Basics>()
        .with::<Further>()
        .refusing(Refused::REASONS)
        .narrowed("input", input)
        .narrowed("conversation", named.clone())
        .narrowed("tool_choice", named)
        .narrowed("response_format", json!({"type": ["object", "null"]}))
}

/// Translate a request.
pub(super) fn parse(
    object: Map<String, Value>,
    mode: Unsupported,
    ids: &mut Ids,
) -> Result<ResponseCall, Problem> {
    let echoed = repeated(&object);
    let mut reader = FieldReader::new(object, mode);
    let mut basics: Basics = reader.read()?;
    let mut further: Further = reader.read()?;
    reader.read::<Refused>()?.refuse(&mut reader)?;
    let mut fields = fields(&basics, &further)?;
    labels::write(echoed.get("metadata"), &mut fields)?;
    let server_tools = further.server_tools.clone().unwrap_or_default();
    let choice = basics.tool_choice.as_ref();
    let file_search = tools::write(
        basics.tools.as_ref(),
        choice,
        server_tools,
        &mut reader,
        &mut fields,
    )?;
    fields.constraint = constraint(&basics, &further)?;
    check_tier(basics.service_tier.as_deref(), &mut reader)?;
    let store = basics.store.unwrap_or(true);
    let background = basics.background.unwrap_or(false);
    if background && !store {
        return Err(Problem::invalid(
            "background",
            "`background` needs `store` to be true: the response is fetched later",
        ));
    }
    let arguments = arguments(&basics, &further)?;
    let shape = shape(&basics, &further, fields.logprobs.is_some());
    let echo = echo(&mut basics, echoed, &fields);
    let call = ResponseCall {
        shape,
        echo,
        file_search,
        arguments,
        template: ChosenTemplate::of("chat_template", further.chat_template.clone()),
        input: input(&mut basics, &mut further, ids)?,
        previous: basics.previous_response_id.clone(),
        conversation: conversation(&basics)?,
        store,
        background,
        truncates: basics.truncation == Some(Truncation::Auto),
        instructions: basics.instructions,
        fields,
        ignored: reader.finish(|_| false)?,
    };
    if call.previous.is_some() && call.conversation.is_some() {
        return Err(Problem::invalid(
            "conversation",
            "`conversation` and `previous_response_id` both say what goes before; give one of them",
        ));
    }
    Ok(call)
}

fn fields(basics: &Basics, further: &Further) -> Result<RequestFields, Problem> {
    let decoding = further.decoding.as_ref();
    let include = basics.include.as_deref().unwrap_or_default();
    for (at, word) in include.iter().enumerate() {
        if !INCLUDABLE.contains(&word.as_str()) {
            let path = FieldPath::from("include").index(at);
            let known = INCLUDABLE.join("`, `");
            let problem = format!("`{path}` must be one of `{known}`");
            return Err(Problem::invalid(path.to_string(), problem));
        }
    }
    let wants_logprobs = include.iter().any(|word| word == INCLUDABLE[0]);
    let at_least = |count: Option<u32>, name: &str| match count {
        Some(0) => Err(Problem::invalid(
            name,
            format!("`{name}` must be at least 1"),
        )),
        count => Ok(count),
    };
    let stop = further.stop.clone().or_else(|| decoding?.stop.clone());
    let beams = decoding.and_then(|decoding| decoding.beam_size);
    let max_tokens = at_least(basics.max_output_tokens, "max_output_tokens")?;
    let decoded = at_least(
        decoding.and_then(|decoding| decoding.max_tokens),
        "decoding.max_tokens",
    )?;
    Ok(RequestFields {
        model: basics.model.clone().unwrap_or_default(),
        max_tokens: max_tokens.or(decoded),
        temperature: basics.temperature.or_else(|| decoding?.temperature),
        top_p: basics.top_p.or_else(|| decoding?.top_p),
        top_k: further.top_k.or_else(|| decoding?.top_k),
        min_p: further.min_p,
        seed: further.seed,
        repetition_penalty: further
            .repetition_penalty
            .or_else(|| decoding?.repetition_penalty),
        frequency_penalty: basics.frequency_penalty,
        presence_penalty: basics.presence_penalty,
        stop: stop.unwrap_or_default().0,
        logprobs: match (basics.top_logprobs, wants_logprobs) {
            (None | Some(0), false) => None,
            (top, _) => Some(top.unwrap_or(0)),
        },
        beams: beams.filter(|size| *size != 1).map(|size| BeamFields {
            size,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
        }),
        max_server_tool_calls: basics.max_tool_calls,
        parallel_tool_calls: basics.parallel_tool_calls,
        fairness_key: further.fairness_key.clone(),
        allow_remote: further.allow_remote.unwrap_or(false),
        stream: basics.stream.unwrap_or(false),
        ..RequestFields::default()
    })
}

fn shape(basics: &Basics, further: &Further, logprobs: bool) -> ResponseShape {
    let include = basics.include.as_deref().unwrap_or_default();
    let includes = |name: &str| include.iter().any(|word| word == name);
    let options = basics.stream_options.as_ref();
    let asked = further.decoding.is_some()
        || further.messages.is_some()
        || further.thinking.is_some()
        || further.allow_remote.is_some()
        || further.target_lang_code.is_some();
    ResponseShape {
        logprobs,
        encrypted: includes("reasoning.encrypted_content"),
        results: includes("file_search_call.results"),
        obfuscate: options.and_then(|options| options.include_obfuscation) == Some(true),
        metrics: further.metrics.unwrap_or(asked),
    }
}

/// Items of `input`, or the plainer `messages`.
fn input(basics: &mut Basics, further: &mut Further, ids: &mut Ids) -> Result<Vec<Value>, Problem> {
    match (basics.input.take(), further.messages.take()) {
        (Some(_), Some(_)) => Err(Problem::invalid(
            "messages",
            "`messages` and `input` exclude each other",
        )),
        (Some(input), None) => items::of_input(&FieldPath::from("input"), input, ids),
        (None, Some(messages)) => {
            let path = FieldPath::from("messages");
            let list = items::list_of(&path, Some(messages))?;
            let role = |item: &Value| item["role"].as_str().unwrap_or_default().to_owned();
            if let Some(at) = list
                .iter()
                .position(|item| !matches!(role(item).as_str(), "user" | "assistant"))
            {
                let path = path.index(at).key("role");
                let problem = format!("`{path}` must be `user` or `assistant`");
                return Err(Problem::invalid(path.to_string(), problem));
            }
            if list.last().is_none_or(|item| role(item) != "user") {
                let problem = "the last of `messages` must be of role `user`";
                return Err(Problem::invalid("messages", problem));
            }
            items::of_list(&path, list, ids)
        }
        (None, None) if basics.previous_response_id.is_some() || basics.conversation.is_some() => {
            Ok(Vec::new())
        }
        (None, None) => Err(missing(&FieldPath::from("input"))),
    }
}

/// The id of the conversation, by itself or in an object.
fn conversation(basics: &Basics) -> Result<Option<String>, Problem> {
    match &basics.conversation {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(Value::Object(object)) => {
            let id = items::text(&FieldPath::from("conversation"), object, "id")?;
            Ok(Some(id.to_owned()))
        }
        Some(other) => Err(wrong_type(
            &FieldPath::from("conversation"),
            "an id or an object with one",
            other,
        )),
    }
}

fn arguments(basics: &Basics, further: &Further) -> Result<TemplateArguments, Problem> {
    let mut arguments = further.chat_template_kwargs.clone().unwrap_or_default();
    if let Some(effort) = basics
        .reasoning
        .as_ref()
        .and_then(|reasoning| reasoning.effort)
    {
        arguments
            .entry("reasoning_effort")
            .or_insert(json!(effort.word()));
        if effort == Effort::None {
            arguments.entry("enable_thinking").or_insert(json!(false));
        }
    }
    match further.thinking {
        None | Some(Thinking::Default) => {}
        Some(thinking) => {
            let on = thinking == Thinking::Enabled;
            arguments.entry("enable_thinking").or_insert(json!(on));
        }
    }
    if let Some(verbosity) = basics.text.as_ref().and_then(|text| text.verbosity) {
        arguments
            .entry("verbosity")
            .or_insert(json!(verbosity.word()));
    }
    if let Some(target) = &further.target_lang_code {
        if basics.instructions.is_some() {
            return Err(Problem::invalid(
                "instructions",
                "`instructions` must be absent where `target_lang_code` is given",
            ));
        }
        let source = further.source_lang_code.as_deref().unwrap_or("auto");
        arguments.entry("source_lang_code").or_insert(json!(source));
        arguments.entry("target_lang_code").or_insert(json!(target));
    } else if further.source_lang_code.is_some() {
        return Err(missing(&FieldPath::from("target_lang_code")));
    }
    let arguments = TemplateArguments::new(arguments).map_err(|error| {
        let path = FieldPath::from("chat_template_kwargs").key(&error.name);
        Problem::invalid(path.to_string(), error.problem)
    })?;
    let effort = basics.reasoning.as_ref().and_then(|it| it.effort);
    let asked = match further.thinking {
        None | Some(Thinking::Default) => effort.map(|effort| effort != Effort::None),
        Some(thinking) => Some(thinking == Thinking::Enabled),
    };
    Ok(arguments.thinking(asked))
}

/// The constraint of `text.format`, or of the older `response_format`.
fn constraint(basics: &Basics, further: &Further) -> Result<Option<ContentConstraint>, Problem> {
    let format = basics.text.as_ref().and_then(|text| text.format.as_ref());
    let (path, format) = match (format, &further.response_format) {
        (Some(format), None) => (FieldPath::from("text").key("format"), format.clone()),
        (None, Some(Value::Object(format))) => {
            (FieldPath::from("response_format"), flattened(format))
        }
        (None, Some(other)) => {
            return Err(wrong_type(
                &FieldPath::from("response_format"),
                "an object",
                other,
            ));
        }
        (Some(_), Some(_)) => {
            return Err(Problem::invalid(
                "response_format",
                "`response_format` and `text.format` both constrain the answer; give one of them",
            ));
        }
        (None, None) => return Ok(None),
    };
    let source = match items::text(&path, &format, "type")? {
        "text" => return Ok(None),
        "json_object" => GrammarSource::JsonObject,
        "json_schema" => {
            let name = path.key("name");
            ToolName::new(items::text(&path, &format, "name")?)
                .map_err(|error| Problem::invalid(name.to_string(), format!("`{name}` {error}")))?;
            match format.get("schema") {
                Some(schema @ Value::Object(_)) => GrammarSource::JsonSchema(schema.to_string()),
                None | Some(Value::Null) => return Err(missing(&path.key("schema"))),
                Some(other) => return Err(wrong_type(&path.key("schema"), "an object", other)),
            }
        }
        _ => {
            let path = path.key("type");
            let problem = format!("`{path}` must be one of `text`, `json_object`, `json_schema`");
            return Err(Problem::invalid(path.to_string(), problem));
        }
    };
    Ok(Some(ContentConstraint::new(path.to_string(), source)))
}

/// `{"type", "json_schema": {"name", "schema"}}` with the inner members beside the type.
fn flattened(format: &Map<String, Value>) -> Map<String, Value> {
    let mut flat = format.clone();
    if let Some(Value::Object(inner)) = flat.remove("json_schema") {
        flat.extend(inner);
    }
    flat
}

/// Fields of the request that the response repeats, each present.
fn echo(
    basics: &mut Basics,
    mut object: Map<String, Value>,
    fields: &RequestFields,
) -> Map<String, Value> {
    let tools = basics.tools.take().unwrap_or_default().into_iter();
    let tools = tools.map(echoed_tool).collect::<Vec<_>>();
    let mut given = |name: &str| object.get_mut(name).map(Value::take).unwrap_or_default();
    let or = |value: Value, default: Value| match value {
        Value::Null => default,
        value => value,
    };
    let reasoning = basics.reasoning.as_ref();
    let summary = reasoning.and_then(|reasoning| reasoning.summary.or(reasoning.generate_summary));
    let effort = reasoning.and_then(|reasoning| reasoning.effort);
    let text = basics.text.as_ref();
    let format = text.and_then(|text| text.format.clone());
    let format = format.map_or_else(|| json!({"type": "text"}), Value::Object);
    let verbosity = text.and_then(|text| text.verbosity).map(Verbosity::word);
    let all = json!({
        "instructions": given("instructions"),
        "max_output_tokens": fields.max_tokens,
        "max_tool_calls": given("max_tool_calls"),
        "parallel_tool_calls": or(given("parallel_tool_calls"), json!(true)),
        "previous_response_id": given("previous_response_id"),
        "prompt_cache_key": given("prompt_cache_key"),
        "prompt_cache_retention": given("prompt_cache_retention"),
        "reasoning": {
            "effort": effort.map(Effort::word),
            "summary": summary.map(Summary::word),
        },
        "safety_identifier": given("safety_identifier"),
        "service_tier": "default",
        "store": or(given("store"), json!(true)),
        "temperature": fields.temperature.unwrap_or(1.0),
        "text": {"format": format, "verbosity": verbosity.unwrap_or("medium")},
        "tool_choice": or(given("tool_choice"), json!("auto")),
        "tools": tools,
        "top_logprobs": fields.logprobs.unwrap_or(0),
        "top_p": fields.top_p.unwrap_or(1.0),
        "presence_penalty": fields.presence_penalty.unwrap_or(0.0),
        "frequency_penalty": fields.frequency_penalty.unwrap_or(0.0),
        "truncation": or(given("truncation"), json!("disabled")),
        "user": given("user"),
        "metadata": or(given("metadata"), json!({})),
    });
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}
