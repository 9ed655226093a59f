//! Bounds of a request's fields.

use mortise_plugin::{GrammarSource, ToolChoice};

use crate::error::ServiceError;
use crate::limits::{
    MAX_CHOICES, MAX_FAIRNESS_KEY, MAX_GRAMMAR_BYTES, MAX_JSON_DEPTH, MAX_LOGIT_BIASES,
    MAX_SERVER_TOOLS, MAX_STOP_BYTES, MAX_STOPS, MAX_STOPS_BYTES, MAX_TOP_LOGPROBS,
};
use crate::refusal::invalid;
use crate::request::{
    ChatPrompt, ContentConstraint, Prompt, PromptEnd, PromptScoring, RequestFields,
};
use mortise_models::conversation::{Message, ToolDeclaration, is_too_deep};

mod endings;
mod selection;

use self::endings::check_endings;
use self::selection::check_selection;

/// A request whose bounds hold. Only [`Request::check`] makes one.
#[derive(Debug, Clone)]
pub struct Request {
    fields: RequestFields,
    /// Declarations of the server's tools that the request opted in to.
    server_tools: Vec<ToolDeclaration>,
}

impl Request {
    /// Check the bounds of every field.
    pub fn check(fields: RequestFields) -> Result<Self, ServiceError> {
        check_counts(&fields)?;
        check_selection(&fields)?;
        check_prompt_logprobs(&fields)?;
        check_sampling(&fields)?;
        check_stops(&fields.stop)?;
        check_endings(&fields)?;
        check_prompt(&fields.prompt)?;
        check_server_tools(&fields)?;
        check_tool_choice(&fields)?;
        check_constraint(fields.constraint.as_ref())?;
        check_fairness_key(fields.fairness_key.as_deref())?;
        Ok(Self {
            fields,
            server_tools: Vec::new(),
        })
    }

    /// Fields as the caller gave them.
    pub fn fields(&self) -> &RequestFields {
        &self.fields
    }

    /// The request with changed fields, whose bounds are checked again.
    ///
    /// # Errors
    /// When the change fails, or breaks a bound.
    pub(crate) fn changed(
        mut self,
        change: impl FnOnce(&mut RequestFields) -> Result<(), ServiceError>,
    ) -> Result<Self, ServiceError> {
        change(&mut self.fields)?;
        let changed = Self::check(self.fields)?;
        Ok(Self {
            server_tools: self.server_tools,
            ..changed
        })
    }

    /// The request with the declarations of the server's tools beside those of the caller.
    pub(crate) fn with_server_tools(
        mut self,
        declarations: Vec<ToolDeclaration>,
    ) -> Result<Self, ServiceError> {
        for (at, tool) in declarations.iter().enumerate() {
            let name = tool.name.as_str();
            if self.fields.tools.contains(name) {
                return Err(invalid(
                    format!("server_tools[{at}]"),
                    format!("the function `{name}` is declared twice; rename one of them"),
                ));
            }
        }
        self.server_tools = declarations;
        Ok(self)
    }

    /// All tools that the model may be shown: the caller's, then the server's.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &ToolDeclaration> {
        self.fields
            .tools
            .declarations()
            .iter()
            .chain(&self.server_tools)
    }

    /// The request with a finished turn of the model and its tools appended. A forced tool call has
    /// been made by then, so the next turn is free.
    pub(crate) fn continued(&self, turn: Vec<Message>) -> Self {
        let mut next = self.clone();
        if let Prompt::Chat(chat) = &mut next.fields.prompt {
            chat.conversation.append(turn);
        }
        next.fields.tool_choice = None;
        next
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

    /// Tool choice. Without one, the model decides if there are tools.
    pub fn tool_choice(&self) -> ToolChoice {
        match (&self.fields.tool_choice, self.tools().next()) {
            (Some(choice), _) => choice.clone(),
            (None, None) => ToolChoice::None,
            (None, Some(_)) => ToolChoice::Auto,
        }
    }

    /// Names of the tools that the answer may call.
    pub(crate) fn callable(&self) -> Vec<String> {
        match self.tool_choice() {
            ToolChoice::None => Vec::new(),
            ToolChoice::Named(name) => vec![name],
            ToolChoice::Auto | ToolChoice::Required => {
                self.tools().map(|tool| tool.name.to_string()).collect()
            }
        }
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
    if fields.max_tokens == Some(0) && fields.prompt_logprobs.is_none() {
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

fn check_prompt_logprobs(fields: &RequestFields) -> Result<(), ServiceError> {
    let Some(PromptScoring { field, top }) = fields.prompt_logprobs else {
        return Ok(());
    };
    if top > MAX_TOP_LOGPROBS {
        return Err(invalid(
            field,
            format!("{field} is {top}; it must be at most {MAX_TOP_LOGPROBS}"),
        ));
    }
    let beside = if fields.beams.is_some() {
        "a beam search"
    } else if fields.runs_tools() {
        "tools of the server"
    } else {
        return Ok(());
    };
    let message = format!("log-probabilities of the prompt are not computed beside {beside}");
    Err(invalid(field, message))
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
        Prompt::Chat(ChatPrompt {
            conversation,
            end: PromptEnd::OpenMessage,
            ..
        }) if !conversation.ends_with_assistant() => Err(invalid(
            "continue_final_message",
            "continue_final_message needs a last message of role `assistant`",
        )),
        Prompt::Tokens(ids) if ids.is_empty() => Err(invalid(
            "prompt",
            "the prompt is an empty list of tokens; give at least one",
        )),
        Prompt::Chat(_) | Prompt::Text(_) | Prompt::Tokens(_) => Ok(()),
    }
}

fn check_server_tools(fields: &RequestFields) -> Result<(), ServiceError> {
    let names = &fields.server_tools;
    if fields.return_tokens && fields.runs_tools() {
        return Err(invalid(
            "return_token_ids",
            "an answer in which tools of the server run has several prompts, and their tokens are not reported; \
             leave out `return_token_ids` or `server_tools`",
        ));
    }
    if names.len() > MAX_SERVER_TOOLS {
        let count = names.len();
        return Err(invalid(
            "server_tools",
            format!("server_tools names {count} tools; at most {MAX_SERVER_TOOLS} are allowed"),
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
    if !fields.runs_tools() {
        return Ok(());
    }
    match &fields.prompt {
        Prompt::Chat(chat) if chat.end == PromptEnd::OpenMessage => Err(invalid(
            "server_tools",
            "server_tools cannot be used together with continue_final_message",
        )),
        Prompt::Chat(_) => Ok(()),
        Prompt::Text(_) | Prompt::Tokens(_) => Err(invalid(
            "server_tools",
            "server_tools need a conversation; a text to continue calls no tools",
        )),
    }
}

fn check_tool_choice(fields: &RequestFields) -> Result<(), ServiceError> {
    match fields.tool_choice.as_ref() {
        Some(ToolChoice::Required) if fields.tools.is_empty() && !fields.runs_tools() => {
            Err(invalid(
                "tool_choice",
                "tool_choice is `required` and there are no tools; give tools as well",
            ))
        }
        Some(ToolChoice::Named(name)) => {
            if fields.tools.contains(name) || fields.runs_tool(name) {
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

fn check_constraint(constraint: Option<&ContentConstraint>) -> Result<(), ServiceError> {
    let Some(ContentConstraint { field, source, .. }) = constraint else {
        return Ok(());
    };
    let (GrammarSource::JsonSchema(text) | GrammarSource::Regex(text) | GrammarSource::Lark(text)) =
        source
    else {
        return Ok(());
    };
    if text.len() > MAX_GRAMMAR_BYTES {
        let size = text.len();
        return Err(invalid(
            field,
            format!("the grammar has {size} bytes; at most {MAX_GRAMMAR_BYTES} are allowed"),
        ));
    }
    match source {
        GrammarSource::JsonSchema(schema) => check_schema(field, schema),
        _ => Ok(()),
    }
}

fn check_schema(field: &str, schema: &str) -> Result<(), ServiceError> {
    let schema: serde_json::Value = serde_json::from_str(schema)
        .map_err(|error| invalid(field, format!("the JSON schema is not JSON: {error}")))?;
    if !schema.is_object() && !schema.is_boolean() {
        return Err(invalid(field, "the JSON schema is not an object"));
    }
    if is_too_deep(&schema, 1) {
        let message = format!("the JSON is nested more than {MAX_JSON_DEPTH} deep");
        return Err(invalid(field, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
