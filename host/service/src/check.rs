//! From what a caller asked for to a request whose bounds hold.

use mortise_plugin::{GrammarSource, ToolChoice};
use serde_json::Value;

use crate::error::ServiceError;
use crate::messages::{
    MAX_TOOLS, check_depth, check_messages, check_template_arguments, check_tools,
};
use crate::request::{Prompt, RequestFields};

mod selection;

use self::selection::check_selection;

/// Most choices of one request. A server may be configured to allow fewer.
pub const MAX_CHOICES: u32 = 128;
/// Most stop strings.
pub const MAX_STOPS: usize = 16;
/// Longest stop string in bytes.
pub const MAX_STOP_BYTES: usize = 1024;
/// All stop strings together, in bytes.
pub const MAX_STOPS_BYTES: usize = 4096;
/// Most alternatives of a token's log-probability.
pub const MAX_TOP_LOGPROBS: u32 = 20;
/// Most tokens to bias.
pub const MAX_LOGIT_BIASES: usize = 1024;
/// Longest fairness key in characters.
pub const MAX_FAIRNESS_KEY: usize = 128;
/// Longest source of a grammar in bytes.
pub const MAX_GRAMMAR_BYTES: usize = 1 << 20;

/// A request whose bounds hold. Only [`Request::check`] makes one.
#[derive(Debug, Clone)]
pub struct Request {
    fields: RequestFields,
}

impl Request {
    /// Check the bounds of every field.
    pub fn check(fields: RequestFields) -> Result<Self, ServiceError> {
        check_counts(&fields)?;
        check_selection(&fields)?;
        check_sampling(&fields)?;
        check_stops(&fields.stop)?;
        check_prompt(&fields.prompt)?;
        check_tools(&fields.tools)?;
        check_server_tools(&fields)?;
        check_tool_choice(&fields)?;
        check_grammar(fields.grammar.as_ref())?;
        check_fairness_key(fields.fairness_key.as_deref())?;
        Ok(Self { fields })
    }

    /// What was asked for.
    pub fn fields(&self) -> &RequestFields {
        &self.fields
    }

    /// The request with the declarations of the server's tools among those of the caller.
    pub(crate) fn with_tools(
        mut self,
        declarations: impl Iterator<Item = Value>,
    ) -> Result<Self, ServiceError> {
        self.fields.tools.extend(declarations);
        check_tools(&self.fields.tools)?;
        Ok(self)
    }

    /// The request as it goes on when these messages follow. The model has made the call that it had
    /// to make, and is free now.
    pub(crate) fn continued(&self, more: Vec<Value>) -> Self {
        let mut fields = self.fields.clone();
        if let Prompt::Chat { messages, .. } = &mut fields.prompt {
            messages.extend(more);
        }
        fields.tool_choice = None;
        Self { fields }
    }

    /// Number of choices in the answer.
    pub fn choices(&self) -> u32 {
        self.fields.n.unwrap_or(1)
    }

    /// Number of continuations that are generated for them, and the field that asks for so many.
    pub fn candidates(&self) -> (u32, &'static str) {
        let fields = &self.fields;
        match (&fields.beams, fields.best_of) {
            (Some(beams), _) => (beams.size, "beam_size"),
            (None, Some(best_of)) => (best_of, "best_of"),
            (None, None) => (self.choices(), "n"),
        }
    }

    /// How tools may be used, as OpenAI defines it for a caller who did not say.
    pub fn tool_choice(&self) -> ToolChoice {
        match &self.fields.tool_choice {
            Some(choice) => choice.clone(),
            None if self.fields.tools.is_empty() => ToolChoice::None,
            None => ToolChoice::Auto,
        }
    }
}

/// A refusal that names a field.
pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> ServiceError {
    refuse(param, "invalid_value", message)
}

/// A refusal that names a field and has a code of its own.
pub(crate) fn refuse(
    param: impl Into<String>,
    code: &'static str,
    message: impl Into<String>,
) -> ServiceError {
    ServiceError::Invalid {
        param: Some(param.into()),
        code,
        message: message.into(),
    }
}

fn check_counts(fields: &RequestFields) -> Result<(), ServiceError> {
    if let Some(n) = fields.n
        && !(1..=MAX_CHOICES).contains(&n)
    {
        return Err(invalid(
            "n",
            format!("n is {n}; it must be between 1 and {MAX_CHOICES}"),
        ));
    }
    if fields.max_tokens == Some(0) {
        return Err(invalid(
            "max_tokens",
            "max_tokens is 0; it must be at least 1",
        ));
    }
    if let Some(top) = fields.logprobs
        && top > MAX_TOP_LOGPROBS
    {
        return Err(invalid(
            "top_logprobs",
            format!("top_logprobs is {top}; it must be at most {MAX_TOP_LOGPROBS}"),
        ));
    }
    Ok(())
}

fn check_sampling(fields: &RequestFields) -> Result<(), ServiceError> {
    let within = |param: &'static str, value: Option<f64>, low: f64, high: f64| match value {
        // Written so that NaN is refused.
        Some(value) if !(low..=high).contains(&value) => Err(invalid(
            param,
            format!("{param} is {value}; it must be between {low} and {high}"),
        )),
        _ => Ok(()),
    };
    let above_zero = |param: &'static str, value: Option<f64>, high: f64| match value {
        Some(value) if !(value > 0.0 && value <= high) => Err(invalid(
            param,
            format!("{param} is {value}; it must be above 0 and at most {high}"),
        )),
        _ => Ok(()),
    };
    within("temperature", fields.temperature, 0.0, 2.0)?;
    above_zero("top_p", fields.top_p, 1.0)?;
    within("min_p", fields.min_p, 0.0, 1.0)?;
    above_zero("repetition_penalty", fields.repetition_penalty, 4.0)?;
    within("frequency_penalty", fields.frequency_penalty, -2.0, 2.0)?;
    within("presence_penalty", fields.presence_penalty, -2.0, 2.0)?;
    if fields.logit_bias.len() > MAX_LOGIT_BIASES {
        let count = fields.logit_bias.len();
        return Err(invalid(
            "logit_bias",
            format!("logit_bias has {count} tokens; at most {MAX_LOGIT_BIASES} are allowed"),
        ));
    }
    for &(id, bias) in &fields.logit_bias {
        if !(-100.0..=100.0).contains(&bias) {
            return Err(invalid(
                format!("logit_bias.{id}"),
                format!("the bias of token {id} is {bias}; it must be between -100 and 100"),
            ));
        }
    }
    Ok(())
}

fn check_stops(stops: &[String]) -> Result<(), ServiceError> {
    if stops.len() > MAX_STOPS {
        let count = stops.len();
        return Err(invalid(
            "stop",
            format!("stop has {count} strings; at most {MAX_STOPS} are allowed"),
        ));
    }
    for (at, stop) in stops.iter().enumerate() {
        if stop.is_empty() || stop.len() > MAX_STOP_BYTES {
            let size = stop.len();
            return Err(invalid(
                format!("stop[{at}]"),
                format!("a stop string has {size} bytes; 1 to {MAX_STOP_BYTES} are allowed"),
            ));
        }
    }
    let total: usize = stops.iter().map(String::len).sum();
    if total > MAX_STOPS_BYTES {
        return Err(invalid(
            "stop",
            format!("the stop strings have {total} bytes; at most {MAX_STOPS_BYTES} are allowed"),
        ));
    }
    Ok(())
}

fn check_prompt(prompt: &Prompt) -> Result<(), ServiceError> {
    match prompt {
        Prompt::Chat {
            messages,
            template_arguments,
            add_generation_prompt,
            continue_final_message,
        } => {
            check_messages(messages)?;
            check_template_arguments(template_arguments)?;
            if !*continue_final_message {
                return Ok(());
            }
            if *add_generation_prompt {
                return Err(invalid(
                    "continue_final_message",
                    "continue_final_message cannot be used together with add_generation_prompt",
                ));
            }
            let last = messages
                .last()
                .and_then(|m| m.get("role"))
                .and_then(|r| r.as_str());
            if last != Some("assistant") {
                return Err(invalid(
                    "continue_final_message",
                    "continue_final_message needs a last message of role `assistant`",
                ));
            }
            Ok(())
        }
        Prompt::Text(_) => Ok(()),
        Prompt::Tokens(ids) if ids.is_empty() => Err(invalid(
            "prompt",
            "the prompt is an empty list of tokens; give at least one",
        )),
        Prompt::Tokens(_) => Ok(()),
    }
}

fn check_server_tools(fields: &RequestFields) -> Result<(), ServiceError> {
    let names = &fields.server_tools;
    if names.len() > MAX_TOOLS {
        let count = names.len();
        return Err(invalid(
            "server_tools",
            format!("server_tools names {count} tools; at most {MAX_TOOLS} are allowed"),
        ));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(invalid(
                format!("server_tools[{at}]"),
                format!("the tool `{name}` is named twice"),
            ));
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    match &fields.prompt {
        Prompt::Chat {
            continue_final_message: false,
            ..
        } => Ok(()),
        Prompt::Chat { .. } => Err(invalid(
            "server_tools",
            "server_tools cannot be used together with continue_final_message",
        )),
        Prompt::Text(_) | Prompt::Tokens(_) => Err(invalid(
            "server_tools",
            "server_tools need a conversation; a text to continue calls no tools",
        )),
    }
}

fn check_tool_choice(fields: &RequestFields) -> Result<(), ServiceError> {
    match fields.tool_choice.as_ref() {
        Some(ToolChoice::Required) if fields.tools.is_empty() && fields.server_tools.is_empty() => {
            Err(invalid(
                "tool_choice",
                "tool_choice is `required` and there are no tools; give tools as well",
            ))
        }
        Some(ToolChoice::Named(name)) => {
            let declared = fields.tools.iter().any(|tool| {
                tool.pointer("/function/name").and_then(|n| n.as_str()) == Some(name.as_str())
            });
            if declared || fields.server_tools.contains(name) {
                return Ok(());
            }
            Err(invalid(
                "tool_choice",
                format!("tool_choice names the function `{name}`, which is not among the tools"),
            ))
        }
        _ => Ok(()),
    }
}

fn check_fairness_key(key: Option<&str>) -> Result<(), ServiceError> {
    let length = key.map_or(1, |key| key.trim().chars().count());
    if (1..=MAX_FAIRNESS_KEY).contains(&length) {
        return Ok(());
    }
    Err(invalid(
        "fairness_key",
        format!(
            "fairness_key has {length} characters, blanks around it not counted; \
             1 to {MAX_FAIRNESS_KEY} are allowed"
        ),
    ))
}

fn check_grammar(grammar: Option<&GrammarSource>) -> Result<(), ServiceError> {
    let Some(
        GrammarSource::JsonSchema(source)
        | GrammarSource::Regex(source)
        | GrammarSource::Lark(source),
    ) = grammar
    else {
        return Ok(());
    };
    if source.len() > MAX_GRAMMAR_BYTES {
        let size = source.len();
        return Err(invalid(
            "response_format",
            format!("the grammar has {size} bytes; at most {MAX_GRAMMAR_BYTES} are allowed"),
        ));
    }
    if let Some(GrammarSource::JsonSchema(schema)) = grammar {
        let schema: serde_json::Value = serde_json::from_str(schema).map_err(|error| {
            invalid(
                "response_format",
                format!("the JSON schema is not JSON: {error}"),
            )
        })?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err(invalid(
                "response_format",
                "the JSON schema is not an object",
            ));
        }
        check_depth("response_format", &schema)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
