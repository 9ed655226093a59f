//! `POST /v1/chat/completions`: from wire JSON to the service's fields.

use mortise_http::Problem;
use mortise_service::{
    ChatPrompt, ChosenTemplate, Conversation, Prompt, PromptEnd, RequestFields, TemplateArguments,
    ToolChoice,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::constraint::Constraints;
use super::envelope::AnswerShape;
use super::messages::{ChatMessages, is_tolerated};
use super::reasoning::ReasoningFields;
use super::sampling::{Beams, SamplingFields, Streaming, positive};
use super::tools::ChatToolFields;
use crate::fields::{FieldPath, FieldReader, RouteFields, TextOrTexts, refused_fields, words};
use crate::labels;
use crate::unsupported::Unsupported;

/// A chat request, translated.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub(crate) fields: RequestFields,
    pub(crate) shape: AnswerShape,
    /// Fields left out of account, if the operator allows that.
    pub(crate) ignored: Vec<String>,
}

/// Fields of which every value, or every value within bounds, is honoured.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Basics {
    model: String,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<Effort>,
    verbosity: Option<Verbosity>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    documents: Option<Vec<Map<String, Value>>>,
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
    /// Length of answers, which templates know by the same words.
    Verbosity {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

/// Fields of which some values only are honoured, and whether the completion is stored.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "the handler stores")]
struct Fixed {
    store: Option<bool>,
    service_tier: Option<String>,
    modalities: Option<TextOrTexts>,
}

/// Labels of the caller's own, for policies and for stored completions.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Labels {
    metadata: Option<Value>,
}

/// Hints that carry no promise that a caller could observe: names of users, hints about
/// prefixes to keep, and predictions, which may make an answer faster and never change it. They are
/// accepted, and this is the whole list.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "hints are read and have no effect")]
struct Hints {
    user: Option<Value>,
    safety_identifier: Option<Value>,
    prompt_cache_key: Option<Value>,
    prompt_cache_options: Option<Value>,
    prompt_cache_retention: Option<Value>,
    prediction: Option<Value>,
}

refused_fields! {
    /// Fields of OpenAI or of other servers that cannot be honoured.
    Refused {
        audio: "this server's models produce text only",
        moderation: "this server has no moderation model",
        web_search_options: "this server does not search the web",
        best_of: "chat completions have no `best_of`; use `n`",
        echo: "chat completions cannot repeat the prompt; use /v1/completions",
        guided_grammar_backend: "the grammar plugin is the operator's choice",
        mm_processor_kwargs: "this server's models read text only",
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .tolerating(is_tolerated)
        .with::<Basics>()
        .with::<ChatMessages>()
        .with::<Streaming>()
        .with::<SamplingFields>()
        .with::<Beams>()
        .with::<ChatToolFields>()
        .with::<ReasoningFields>()
        .with::<Constraints>()
        .with::<Fixed>()
        .with::<Labels>()
        .with::<Hints>()
        .refusing(Refused::REASONS)
}

/// Translate a request.
pub(crate) fn parse(object: Map<String, Value>, mode: Unsupported) -> Result<ChatCall, Problem> {
    let mut reader = FieldReader::new(object, mode);
    let basics: Basics = reader.read()?;
    let streaming: Streaming = reader.read_if_any()?;
    let mut request = RequestFields {
        model: basics.model.clone(),
        max_tokens: max_tokens(&basics, &mut reader)?,
        stream: streaming.is_streamed(),
        ..RequestFields::default()
    };
    let messages: ChatMessages = reader.read()?;
    let sampling: SamplingFields = reader.read_if_any()?;
    sampling.write(&mut reader, &mut request)?;
    let labels: Labels = reader.read_if_any()?;
    labels::write(labels.metadata.as_ref(), &mut request)?;
    let beams: Beams = reader.read_if_any()?;
    beams.write(&mut request)?;
    request.logprobs = logprobs(&basics)?;
    let tools: ChatToolFields = reader.read_if_any()?;
    let legacy_functions = tools.write(&mut reader, &mut request)?;
    let constraints: Constraints = reader.read_if_any()?;
    request.constraint = constraints.translate()?;
    check_constraint(&request, legacy_functions)?;
    let answers = messages.answers();
    let conversation = messages.translate(&reader)?;
    let reasoning: ReasoningFields = reader.read_if_any()?;
    reasoning.write_budget(&mut request)?;
    request.prompt = Prompt::Chat(prompt(basics, conversation, &request)?);
    read_fixed(&mut reader)?;
    let shape = AnswerShape {
        thoughts: reasoning.thoughts()?,
        include_usage: streaming.includes_usage(),
        usage_throughout: streaming.reports_usage_throughout(),
        obfuscate: streaming.obfuscates(),
        logprobs: request.logprobs.is_some(),
        prompt_logprobs: request.prompt_logprobs.map(|scoring| scoring.top),
        echo_logprobs: None,
        token_ids: request.return_tokens,
        legacy_functions,
    };
    Ok(ChatCall {
        ignored: reader.finish(|path| answers.tolerate(path))?,
        fields: request,
        shape,
    })
}

/// The old and the new name of one limit. Both may be given if they agree.
fn max_tokens(basics: &Basics, reader: &mut FieldReader) -> Result<Option<u32>, Problem> {
    let new = positive(
        basics.max_completion_tokens,
        "max_completion_tokens",
        reader,
    )?;
    let old = positive(basics.max_tokens, "max_tokens", reader)?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => Err(Problem::invalid(
            "max_tokens",
            format!(
                "`max_tokens` is {old} and `max_completion_tokens` is {new}; \
                 they name one limit: give one of them"
            ),
        )),
        (new, old) => Ok(new.or(old)),
    }
}

fn logprobs(basics: &Basics) -> Result<Option<u32>, Problem> {
    match (basics.logprobs.unwrap_or(false), basics.top_logprobs) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(Problem::invalid(
            "top_logprobs",
            "`top_logprobs` needs `logprobs` to be true",
        )),
    }
}

/// Refuse a constraint beside a forced tool call: a grammar binds the whole answer, and the call leaves it no room.
fn check_constraint(request: &RequestFields, legacy: bool) -> Result<(), Problem> {
    let forced = matches!(
        request.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Named(_))
    );
    match &request.constraint {
        Some(constraint) if forced => {
            let field = constraint.field.as_str();
            let choice = match legacy {
                true => "function_call",
                false => "tool_choice",
            };
            Err(Problem::invalid(
                field,
                format!(
                    "`{field}` constrains content and `{choice}` forces a tool call; \
                     give one of them"
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn prompt(
    basics: Basics,
    conversation: Conversation,
    request: &RequestFields,
) -> Result<ChatPrompt, Problem> {
    let mut arguments = basics.chat_template_kwargs.unwrap_or_default();
    if let Some(budget) = &request.reasoning_budget {
        // Templates that tell the model of its budget know it by this name.
        let tokens = json!(budget.tokens);
        arguments.entry("thinking_budget").or_insert(tokens);
    }
    if let Some(documents) = basics.documents {
        // Templates for retrieval know them by this name.
        arguments.entry("documents").or_insert(json!(documents));
    }
    if let Some(effort) = basics.reasoning_effort {
        let word = json!(effort.word());
        arguments.entry("reasoning_effort").or_insert(word);
        // Templates that can switch thinking off know it by this name.
        if effort == Effort::None {
            arguments.entry("enable_thinking").or_insert(json!(false));
        }
    }
    if let Some(verbosity) = basics.verbosity {
        let word = json!(verbosity.word());
        arguments.entry("verbosity").or_insert(word);
    }
    let arguments = TemplateArguments::new(arguments).map_err(|error| {
        let path = FieldPath::from("chat_template_kwargs").key(&error.name);
        Problem::invalid(path.to_string(), error.problem)
    })?;
    let asked = basics.reasoning_effort.map(|effort| effort != Effort::None);
    let arguments = arguments.thinking(asked);
    let continued = basics.continue_final_message.unwrap_or(false);
    let end = match (
        basics.add_generation_prompt.unwrap_or(!continued),
        continued,
    ) {
        (true, false) => PromptEnd::AssistantTurn,
        (false, true) => PromptEnd::OpenMessage,
        (false, false) => PromptEnd::ClosedMessage,
        (true, true) => {
            return Err(Problem::invalid(
                "add_generation_prompt",
                "`add_generation_prompt` and `continue_final_message` exclude each other",
            ));
        }
    };
    Ok(ChatPrompt {
        conversation,
        arguments,
        template: ChosenTemplate::of("chat_template", basics.chat_template),
        end,
    })
}

/// Read fields of which some values are honoured, hints, and fields that are always refused.
fn read_fixed(reader: &mut FieldReader) -> Result<(), Problem> {
    let fixed: Fixed = reader.read_if_any()?;
    if fixed
        .service_tier
        .is_some_and(|tier| !matches!(tier.as_str(), "auto" | "default"))
    {
        let why = "this server has one tier: `auto` or `default`";
        reader.unsupported(&FieldPath::from("service_tier"), why)?;
    }
    let modalities = fixed.modalities.unwrap_or_default().0;
    if modalities.iter().any(|modality| modality != "text") {
        let why = "this server's models produce text only";
        reader.unsupported(&FieldPath::from("modalities"), why)?;
    }
    reader.read_if_any::<Hints>()?;
    reader.read_if_any::<Refused>()?.refuse(reader)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::fields::read;

    /// Debug texts of a group that is read from a body without any of its fields, and of the group's default.
    fn of_none<T: DeserializeOwned + Default + Debug>() -> (String, String) {
        let nothing = json!({"model": "m"});
        let (group, _) = read::<T>(&nothing).expect("no field is required");
        (format!("{group:?}"), format!("{:?}", T::default()))
    }

    #[test]
    fn a_group_without_its_fields_is_its_default() {
        for (read, default) in [
            of_none::<Streaming>(),
            of_none::<SamplingFields>(),
            of_none::<Labels>(),
            of_none::<Beams>(),
            of_none::<ChatToolFields>(),
            of_none::<Constraints>(),
            of_none::<ReasoningFields>(),
            of_none::<Fixed>(),
            of_none::<Hints>(),
            of_none::<Refused>(),
        ] {
            assert_eq!(read, default);
        }
    }
}
