//! From a checked request to the request of a conversation runtime.

use std::sync::Arc;

use mortise_engine::Share;
use mortise_models::conversation::template_json;
use mortise_models::{
    ConversationRequest, ConversationRuntime, OutputFormat, RequestedSampling, ToolUse,
};
use mortise_plugin::{GrammarSource, ParserSetup, ToolChoice};

use crate::check::Request;
use crate::error::ServiceError;
use crate::plugin_routing::RequestPlugins;
use crate::plugins::RequestId;
use crate::prepare::{Parsing, not_written};
use crate::refusal::invalid;
use crate::request::{ChatPrompt, ContentConstraint, Prompt, PromptEnd, RequestFields, Written};

/// A model of a conversation runtime.
pub(crate) struct ConversationModel {
    /// Public name.
    pub(crate) name: Arc<str>,
    pub(crate) runtime: Arc<dyn ConversationRuntime>,
}

/// A conversation that is ready for its runtime: what all choices share.
pub(crate) struct ConversationPrompt {
    /// Output parser that is bound in front of the runtime.
    pub(crate) parser: Option<Parsing>,
}

/// Check that the runtime can answer the request, and set up the parser in front of it.
///
/// # Errors
/// When the request needs the model's tokens, which only the runtime knows.
pub(crate) fn prepare(
    model: &ConversationModel,
    plugins: &RequestPlugins,
    request: &Request,
) -> Result<ConversationPrompt, ServiceError> {
    let fields = request.fields();
    let name = &model.name;
    check_consent(
        name,
        model.runtime.requires_allow_remote(),
        fields.allow_remote,
    )?;
    if chat(model, fields)?.end == PromptEnd::ClosedMessage {
        let message = format!("the model `{name}` runs elsewhere and always answers in a new turn");
        return Err(invalid("add_generation_prompt", message));
    }
    if let Some(choice) = &chat(model, fields)?.template {
        let message =
            format!("the model `{name}` runs elsewhere, with the chat template that is there");
        return Err(invalid(choice.field, message));
    }
    check_elsewhere(name, request)?;
    let parser = match &plugins.parser {
        None => None,
        Some(parser) => {
            let setup = ParserSetup {
                tools: template_json::tools(request.tools()).map_err(not_written)?,
                tool_choice: request.tool_choice(),
                parallel: fields.parallel_tool_calls.unwrap_or(true),
                opens_reasoning: false,
            };
            Some((Arc::clone(parser), setup))
        }
    };
    Ok(ConversationPrompt { parser })
}

/// Check that a request may leave this server, where the operator asks for consent.
pub(crate) fn check_consent(name: &str, required: bool, given: bool) -> Result<(), ServiceError> {
    if !required || given {
        return Ok(());
    }
    let message = format!(
        "the model `{name}` runs on another server, and this server asks for consent to send the \
         request there: set `allow_remote` to true"
    );
    Err(invalid("allow_remote", message))
}

/// Refuse what needs an engine here.
pub(crate) fn check_elsewhere(name: &str, request: &Request) -> Result<(), ServiceError> {
    let fields = request.fields();
    let budget = fields
        .reasoning_budget
        .as_ref()
        .filter(|budget| budget.required);
    let (field, what) = if let Some(budget) = budget {
        (budget.field, "its tokens are not known")
    } else if let Some(scoring) = fields.prompt_logprobs {
        (scoring.field, "does not tell how likely its prompt is")
    } else if fields.beams.is_some() {
        ("beam_size", "cannot search with beams")
    } else if request.candidates().0 > request.choices() {
        ("best_of", "its choices are not ranked")
    } else if !fields.logit_bias.is_empty() {
        ("logit_bias", "its tokens are not known")
    } else if let Some(field) = needs_tokens(fields) {
        (field, "its tokens are not known")
    } else {
        return Ok(());
    };
    let message = format!("the model `{name}` runs elsewhere and {what}");
    Err(invalid(field, message))
}

/// A field that only a server with the model's tokens can honour.
fn needs_tokens(fields: &RequestFields) -> Option<&'static str> {
    let given = [
        ("stop_token_ids", !fields.stop_tokens.is_empty()),
        ("ignore_eos", fields.ignore_end),
        ("skip_special_tokens", fields.keep_special),
        ("min_tokens", fields.min_tokens > 0),
        ("bad_words", !fields.bad_words.is_empty()),
        ("include_stop_str_in_output", fields.include_stop),
        ("truncate_prompt_tokens", fields.truncate_prompt.is_some()),
        ("priority", fields.waived_priority > 0),
        ("return_token_ids", fields.return_tokens),
    ];
    let found = given.into_iter().find(|(_, given)| *given);
    found.map(|(field, _)| field)
}

fn chat<'a>(
    model: &ConversationModel,
    fields: &'a RequestFields,
) -> Result<&'a ChatPrompt, ServiceError> {
    match &fields.prompt {
        Prompt::Chat(chat) => Ok(chat),
        Prompt::Text(_) | Prompt::Tokens(_) => Err(invalid(
            "prompt",
            format!(
                "the model `{}` answers conversations only; use /v1/chat/completions",
                model.name
            ),
        )),
    }
}

/// Limit of a choice's tokens.
#[derive(Clone, Copy)]
pub(crate) struct TokenLimit {
    pub(crate) max_tokens: u32,
    /// The caller or a policy set it; else it is the server's default.
    pub(crate) given: bool,
}

/// Most tokens of each choice. The runtime knows how many tokens the conversation has, and ends the
/// answer where its context ends.
pub(crate) fn max_tokens(
    model: &ConversationModel,
    request: &Request,
    allowed: Option<u32>,
    default: u32,
) -> u32 {
    let context = model.runtime.context_length();
    let context = context.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    let share = allowed.map_or(u32::MAX, |all| (all / request.candidates().0).max(1));
    let wanted = request.fields().max_tokens.unwrap_or(default);
    wanted.min(share).min(context)
}

/// Request for the choice at `index`.
pub(crate) fn runtime_request(
    model: &ConversationModel,
    request: &Request,
    request_id: &RequestId,
    share: &Share,
    index: u32,
    limit: TokenLimit,
) -> Result<ConversationRequest, ServiceError> {
    let fields = request.fields();
    let chat = chat(model, fields)?;
    let constraint = fields.constraint.as_ref();
    Ok(ConversationRequest {
        request_id: request_id.to_string(),
        share: share.clone(),
        conversation: chat.conversation.clone(),
        arguments: chat.arguments.clone(),
        continue_final_message: chat.end == PromptEnd::OpenMessage,
        tools: request.tools().cloned().collect(),
        tool_use: tool_use(request.tool_choice()),
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        format: constraint.map(own_format),
        max_tokens: limit.max_tokens,
        max_tokens_given: limit.given,
        stop: fields.stop.clone(),
        sampling: sampling(fields, index),
        logprobs: fields.logprobs,
    })
}

/// Sampling of the choice at `index`, as far as the caller says.
pub(crate) fn sampling(fields: &RequestFields, index: u32) -> RequestedSampling {
    RequestedSampling {
        temperature: fields.temperature,
        top_p: fields.top_p,
        top_k: fields.top_k,
        min_p: fields.min_p,
        // Each choice has a stream of its own, or all would be the same.
        seed: fields.seed.map(|seed| seed.wrapping_add(i64::from(index))),
        repetition_penalty: fields.repetition_penalty,
        frequency_penalty: fields.frequency_penalty,
        presence_penalty: fields.presence_penalty,
    }
}

fn tool_use(choice: ToolChoice) -> ToolUse {
    match choice {
        ToolChoice::None => ToolUse::None,
        ToolChoice::Auto => ToolUse::Auto,
        ToolChoice::Required => ToolUse::Required,
        ToolChoice::Named(name) => ToolUse::Named(name),
    }
}

/// The format that a runtime elsewhere is asked for, in the caller's own notation.
fn own_format(constraint: &ContentConstraint) -> OutputFormat {
    match &constraint.written {
        Some(Written::Gbnf(grammar)) => OutputFormat::Gbnf(grammar.clone()),
        Some(Written::StructuralTag(tag)) => OutputFormat::StructuralTag(tag.clone()),
        None => format(&constraint.source),
    }
}

/// A grammar as the format that a runtime elsewhere is asked for.
pub(crate) fn format(source: &GrammarSource) -> OutputFormat {
    match source {
        GrammarSource::JsonObject => OutputFormat::JsonObject,
        GrammarSource::JsonSchema(schema) => OutputFormat::JsonSchema(schema.clone()),
        GrammarSource::Regex(regex) => OutputFormat::Regex(regex.clone()),
        GrammarSource::Lark(grammar) => OutputFormat::Lark(grammar.clone()),
    }
}
