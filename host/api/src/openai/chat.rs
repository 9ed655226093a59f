//! `POST /v1/chat/completions`: from wire JSON to the service's fields.

use mortise_http::Problem as ApiError;
use mortise_service::{Prompt, RequestFields, ToolChoice};
use serde_json::{Map, Value, json};

use super::beams::{BEAM_FIELDS, take_beams};
use super::constraint::take_constraint;
use super::fields::{Fields, take_positive, take_sampling, take_stream_options};
use super::messages;
use super::reply::Shape;
use super::tools;
use crate::unsupported::Unsupported;

/// A chat request, translated.
pub(crate) struct ChatCall {
    pub(crate) fields: RequestFields,
    pub(crate) shape: Shape,
    /// Fields left out of account, if the operator allows that.
    pub(crate) ignored: Vec<String>,
}

/// Hints that carry no promise the caller could observe. They are accepted, and this table is the
/// whole list. Everything else is honoured or refused by name.
const HINTS: [(&str, &str); 7] = [
    (
        "user",
        "an opaque label; mortise knows callers by their keys",
    ),
    ("safety_identifier", "an opaque label, as `user`"),
    (
        "metadata",
        "labels for stored completions, and nothing is stored",
    ),
    (
        "prompt_cache_key",
        "a hint where to look for a cached prefix",
    ),
    (
        "prompt_cache_options",
        "a hint how long to keep a cached prefix",
    ),
    (
        "prompt_cache_retention",
        "a hint how long to keep a cached prefix",
    ),
    (
        "prediction",
        "a hint that may make an answer faster and never changes it",
    ),
];

/// Fields of OpenAI or of other servers that mortise knows and cannot honour.
const REFUSED: [(&str, &str); 12] = [
    ("audio", "this server's models produce text only"),
    ("moderation", "this server has no moderation model"),
    ("web_search_options", "this server does not search the web"),
    (
        "chat_template",
        "templates come from the model's files and plugins, not from requests",
    ),
    ("best_of", "chat completions have no `best_of`; use `n`"),
    (
        "echo",
        "chat completions cannot repeat the prompt; use /v1/completions",
    ),
    ("ignore_eos", "the model's end token always ends an answer"),
    ("min_tokens", "answers have no least length"),
    ("stop_token_ids", "use `stop` with strings"),
    (
        "guided_grammar_backend",
        "the grammar plugin is the operator's choice",
    ),
    ("mm_processor_kwargs", "this server's models read text only"),
    (
        "documents",
        "use `chat_template_kwargs` if the model's template knows `documents`",
    ),
];

/// Every field this route knows, for the nearest-name hint.
const KNOWN: [&str; 58] = [
    "messages",
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "server_tools",
    "functions",
    "function_call",
    "response_format",
    "user",
    "metadata",
    "store",
    "service_tier",
    "reasoning_effort",
    "verbosity",
    "prediction",
    "modalities",
    "audio",
    "web_search_options",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "moderation",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "best_of",
    "echo",
    "min_tokens",
    "ignore_eos",
    "fairness_key",
    BEAM_FIELDS[0],
    BEAM_FIELDS[1],
    BEAM_FIELDS[2],
    BEAM_FIELDS[3],
];

/// Translate a request.
pub(crate) fn parse(body: Map<String, Value>, mode: Unsupported) -> Result<ChatCall, ApiError> {
    let mut fields = Fields::new(body, mode);
    let mut request = RequestFields {
        model: fields.required_string("model")?,
        max_tokens: take_max_tokens(&mut fields)?,
        stream: fields.boolean("stream")?.unwrap_or(false),
        ..RequestFields::default()
    };
    let messages = fields
        .array("messages")?
        .ok_or_else(|| fields.missing("messages"))?;
    take_sampling(&mut fields, &mut request)?;
    take_beams(&mut fields, &mut request)?;
    request.logprobs = take_logprobs(&mut fields)?;
    let legacy_functions = tools::take(&mut fields, &mut request)?;
    take_constraint(&mut fields, &mut request)?;
    check_constraint(&request, legacy_functions)?;
    request.prompt = take_prompt(&mut fields, messages::normalize(messages)?)?;
    let (include_usage, obfuscate) = take_stream_options(&mut fields)?;
    take_fixed(&mut fields)?;
    let shape = Shape {
        include_usage,
        obfuscate,
        logprobs: request.logprobs.is_some(),
        legacy_functions,
    };
    Ok(ChatCall {
        ignored: fields.finish(&KNOWN)?,
        fields: request,
        shape,
    })
}

/// The old and the new name of one limit. They may both stand there if they agree.
fn take_max_tokens(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let new = take_positive(fields, "max_completion_tokens")?;
    let old = take_positive(fields, "max_tokens")?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => Err(ApiError::invalid(
            "max_tokens",
            format!(
                "`max_tokens` is {old} and `max_completion_tokens` is {new}; \
                 they name one limit: give one of them"
            ),
        )),
        (new, old) => Ok(new.or(old)),
    }
}

fn take_logprobs(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    match (wanted, fields.count("top_logprobs")?) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::invalid(
            "top_logprobs",
            "`top_logprobs` needs `logprobs` to be true",
        )),
    }
}

/// A grammar binds the whole answer, and a forced call leaves no room for it.
fn check_constraint(request: &RequestFields, legacy: bool) -> Result<(), ApiError> {
    let forced = matches!(
        request.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Named(_))
    );
    match &request.grammar_field {
        Some(field) if forced => {
            let choice = if legacy {
                "function_call"
            } else {
                "tool_choice"
            };
            Err(ApiError::invalid(
                field.as_str(),
                format!(
                    "`{field}` constrains content and `{choice}` forces a tool call; \
                     give one of them"
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn take_prompt(fields: &mut Fields, messages: Vec<Value>) -> Result<Prompt, ApiError> {
    let mut arguments = match fields.take("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(other) => {
            return Err(super::fields::wrong_type(
                "chat_template_kwargs",
                "an object",
                &other,
            ));
        }
    };
    const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    if let Some(effort) = fields.choice("reasoning_effort", &EFFORTS)? {
        arguments.entry("reasoning_effort").or_insert(json!(effort));
        // Templates that can switch thinking off know it by this name.
        if effort == "none" {
            arguments.entry("enable_thinking").or_insert(json!(false));
        }
    }
    if let Some(verbosity) = fields.choice("verbosity", &["low", "medium", "high"])? {
        arguments.entry("verbosity").or_insert(json!(verbosity));
    }
    let continue_final_message = fields.boolean("continue_final_message")?.unwrap_or(false);
    let add_generation_prompt = fields
        .boolean("add_generation_prompt")?
        .unwrap_or(!continue_final_message);
    if add_generation_prompt && continue_final_message {
        return Err(ApiError::invalid(
            "add_generation_prompt",
            "`add_generation_prompt` and `continue_final_message` exclude each other",
        ));
    }
    Ok(Prompt::Chat {
        messages,
        template_arguments: arguments,
        add_generation_prompt,
        continue_final_message,
    })
}

/// Fields of which mortise honours some values, hints, and fields it always refuses.
fn take_fixed(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.boolean("store")?.unwrap_or(false) {
        fields.unsupported(
            "store",
            "this server stores no completions; leave it out or false",
        )?;
    }
    if let Some(tier) = fields.string("service_tier")?
        && !matches!(tier.as_str(), "auto" | "default")
    {
        fields.unsupported(
            "service_tier",
            "this server has one tier: `auto` or `default`",
        )?;
    }
    let modalities = fields.strings("modalities")?;
    if modalities.iter().any(|modality| modality != "text") {
        fields.unsupported("modalities", "this server's models produce text only")?;
    }
    for (name, _reason) in HINTS {
        fields.take(name);
    }
    for (name, why) in REFUSED {
        if fields.take(name).is_some() {
            fields.unsupported(name, why)?;
        }
    }
    Ok(())
}
