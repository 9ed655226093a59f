//! From a checked request to what the engine needs: prompt, stop strings, constraint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_engine::{LogprobParams, SamplingParams, SubmitError};
use mortise_models::TokenGenerator;
use mortise_plugin::{
    GrammarSource, ParserSetup, RenderedPrompt, Segment, TemplateInput, ToolChoice,
};
use time::OffsetDateTime;

use crate::check::Request;
use crate::description::for_tokenizer;
use crate::encoding;
use crate::error::ServiceError;
use crate::named_templates;
use crate::plugin_routing::RequestPlugins;
use crate::plugins::{ParseOutput, RequestId};
use crate::reasoning_budget::{ForcedEnd, forced_end};
use crate::refusal::{invalid, refuse};
use crate::request::{ChatPrompt, Prompt, PromptEnd, RequestFields, Truncation};
use crate::schema_formats::tools_without_annotations;
use crate::spans;
use crate::stop::StopMatcher;
use crate::uncompiled::not_compiled;
use crate::wanted::wanted;
use mortise_models::conversation::{Modality, TemplateArguments, template_json};
use mortise_tokenizer::{EncodeLimits, Tokenizer, TokenizerError};

/// Argument that tells the chat template whether the request asks for thinking.
const THINKING: &str = "__thinking";

/// An output parser with its setup for a request.
pub(crate) type Parsing = (Arc<dyn ParseOutput>, ParserSetup);

/// A model of a token runtime.
pub(crate) struct TokenModel {
    /// Public name.
    pub(crate) name: Arc<str>,
    pub(crate) generator: TokenGenerator,
}

/// Renderer and tokenizer of a model: makes prompts of conversations.
#[derive(Clone, Copy)]
pub(crate) struct PromptModel<'a> {
    /// Public name.
    pub(crate) name: &'a str,
    pub(crate) tokenizer: &'a Arc<Tokenizer>,
    /// Arguments of the chat template where the caller gives none of their names.
    pub(crate) arguments: &'a TemplateArguments,
    /// Tokens of prompt and answer together; the largest number if only the runtime knows.
    pub(crate) context: usize,
}

impl TokenModel {
    pub(crate) fn prompts(&self) -> PromptModel<'_> {
        PromptModel {
            name: &self.name,
            tokenizer: &self.generator.tokenizer,
            arguments: &self.generator.template_arguments,
            context: self.generator.runtime.context_length(),
        }
    }
}

/// Prompt, stop strings, parser and constraint, which all choices of a request share.
pub(crate) struct Prepared {
    pub(crate) ids: Vec<u32>,
    pub(crate) stop: StopMatcher,
    /// Stop strings that the chat template names.
    pub(crate) template_stops: Vec<String>,
    /// The parser and what it is told; none where an answer is text.
    pub(crate) parser: Option<Parsing>,
    pub(crate) constraint: Option<GrammarSource>,
    pub(crate) keep_special: bool,
    /// Forced end of reasoning.
    pub(crate) reasoning: Option<Box<ForcedEnd>>,
    /// The answer is a text of its own, and does not continue one.
    pub(crate) at_start: bool,
}

/// A prompt, rendered and encoded.
pub(crate) struct PromptTokens {
    /// At least one.
    pub(crate) ids: Vec<u32>,
    /// There for a conversation.
    pub(crate) rendered: Option<RenderedPrompt>,
    /// Time that rendering took.
    pub(crate) render_time: Duration,
}

/// Render and encode.
pub(crate) async fn prompt(
    model: PromptModel<'_>,
    plugins: &RequestPlugins,
    tenant: &Arc<str>,
    request_id: &RequestId,
    request: &Request,
) -> Result<PromptTokens, ServiceError> {
    let fields = request.fields();
    check_ids(model, fields)?;
    let begun = Instant::now();
    let rendered = match &fields.prompt {
        Prompt::Chat(chat) => {
            check_inputs(chat)?;
            let rendered = render(model, plugins, request_id, request, chat);
            Some(spans::part("template", rendered).await?)
        }
        Prompt::Text(_) | Prompt::Tokens(_) => None,
    };
    let render_time = begun.elapsed();
    let ids = encode(model, tenant, fields, rendered.as_ref());
    let ids = spans::part("tokenize", ids).await?;
    let ids = truncate(model, fields, ids);
    if ids.is_empty() {
        return Err(invalid(
            "prompt",
            "the prompt has no tokens; give it some text",
        ));
    }
    Ok(PromptTokens {
        ids,
        rendered,
        render_time,
    })
}

/// Render, encode, and ask the parser for its constraint.
pub(crate) async fn prepare(
    model: PromptModel<'_>,
    plugins: &RequestPlugins,
    tenant: &Arc<str>,
    request_id: &RequestId,
    request: &Request,
) -> Result<Prepared, ServiceError> {
    let fields = request.fields();
    let prompt = prompt(model, plugins, tenant, request_id, request);
    let PromptTokens { ids, rendered, .. } = prompt.await?;
    let stops = fields.stop.iter().map(String::as_str);
    let wanted = wanted(fields, model.tokenizer.control_tokens());
    let wanted = wanted.as_ref();
    let Some(rendered) = rendered else {
        return Ok(Prepared {
            ids,
            stop: StopMatcher::new(stops),
            template_stops: Vec::new(),
            parser: None,
            constraint: wanted.cloned(),
            keep_special: fields.keep_special,
            reasoning: None,
            at_start: false,
        });
    };
    let stop = StopMatcher::new(stops.chain(rendered.stop.iter().map(String::as_str)));
    let parser = parser_for(model, plugins, request, rendered.opens_reasoning)?;
    let constraint = match &parser {
        Some((parser, setup)) => parser
            .constraint(request_id, setup, wanted)
            .await
            .map_err(|error| not_compiled(error, fields))?,
        None => wanted.cloned(),
    };
    let continues = matches!(
        &fields.prompt,
        Prompt::Chat(chat) if chat.end == PromptEnd::OpenMessage
    );
    Ok(Prepared {
        ids,
        stop,
        template_stops: rendered.stop,
        keep_special: fields.keep_special
            || parser
                .as_ref()
                .is_some_and(|(p, _)| p.traits().keep_special_tokens),
        reasoning: {
            let marks = parser.as_ref().and_then(|(p, _)| p.traits().reasoning);
            let opened = rendered.opens_reasoning;
            forced_end(model.name, model.tokenizer, fields, marks, opened)?.map(Box::new)
        },
        parser,
        constraint,
        at_start: !continues,
    })
}

/// Token ids from callers must be ids of tokens.
fn check_ids(model: PromptModel<'_>, fields: &RequestFields) -> Result<(), ServiceError> {
    let size = model.tokenizer.vocabulary_size();
    let known = |id: u32| (id as usize) < size;
    if let Prompt::Tokens(ids) = &fields.prompt
        && let Some((at, id)) = ids.iter().enumerate().find(|&(_, &id)| !known(id))
    {
        return Err(invalid(
            format!("prompt[{at}]"),
            format!("{id} is not a token: this model's ids are below {size}"),
        ));
    }
    if let Some((at, id)) = (fields.stop_tokens.iter().enumerate()).find(|&(_, &id)| !known(id)) {
        return Err(invalid(
            format!("stop_token_ids[{at}]"),
            format!("{id} is not a token: this model's ids are below {size}"),
        ));
    }
    if let Some((id, _)) = fields.logit_bias.iter().find(|&&(id, _)| !known(id)) {
        return Err(invalid(
            format!("logit_bias.{id}"),
            format!("{id} is not a token: this model's ids are below {size}"),
        ));
    }
    Ok(())
}

/// Today as templates write it.
pub(crate) fn today() -> String {
    let date = OffsetDateTime::now_utc().date();
    format!(
        "{:04}-{:02}-{:02}",
        date.year(),
        u8::from(date.month()),
        date.day()
    )
}

/// Refuse images and recordings: no model that is computed here has an encoder for them.
fn check_inputs(chat: &ChatPrompt) -> Result<(), ServiceError> {
    let messages = chat.conversation.messages().iter();
    for part in messages.flat_map(|message| &message.content) {
        let (Modality::Image | Modality::Audio) = part.modality() else {
            continue;
        };
        let Some(origin) = part.origin() else {
            continue;
        };
        return Err(refuse(
            format!("{}.type", origin.path),
            "modality_unsupported",
            format!(
                "`{}` has the type `{}`; this model reads only text",
                origin.path, origin.kind
            ),
        ));
    }
    Ok(())
}

async fn render(
    model: PromptModel<'_>,
    plugins: &RequestPlugins,
    request_id: &RequestId,
    request: &Request,
    chat: &ChatPrompt,
) -> Result<RenderedPrompt, ServiceError> {
    let Some(template) = &plugins.chat_template else {
        return Err(refuse(
            "messages",
            "no_chat_template",
            format!(
                "the model `{}` has no chat template, and its control tokens tell no format; use /v1/completions, \
                 or give it a template (docs/plugins/chat-template.md)",
                model.name
            ),
        ));
    };
    let template = named_templates::chosen(template, chat.template.as_ref(), model.name)?;
    // A model that must not call tools is not shown any.
    let show_tools = request.tools().next().is_some() && request.tool_choice() != ToolChoice::None;
    let arguments = chat.arguments.over(model.arguments);
    let mut members = arguments.members().clone();
    if let Some(asked) = arguments.asks_to_think() {
        members.insert(THINKING.to_owned(), asked.into());
    }
    let input = TemplateInput {
        messages: template_json::messages(&chat.conversation).map_err(not_written)?,
        tools: match show_tools {
            true => Some(template_json::tools(request.tools()).map_err(not_written)?),
            false => None,
        },
        arguments: match members.is_empty() {
            true => None,
            false => Some(template_json::arguments(&members).map_err(not_written)?),
        },
        add_generation_prompt: chat.end == PromptEnd::AssistantTurn,
        continue_final_message: chat.end == PromptEnd::OpenMessage,
        today: today(),
    };
    Ok(template.render(request_id, input).await?)
}

pub(crate) fn not_written(error: serde_json::Error) -> ServiceError {
    ServiceError::Engine(format!("cannot write JSON for a plugin: {error}"))
}

fn parser_for(
    model: PromptModel<'_>,
    plugins: &RequestPlugins,
    request: &Request,
    opens_reasoning: bool,
) -> Result<Option<Parsing>, ServiceError> {
    let tool_choice = request.tool_choice();
    let Some(parser) = &plugins.parser else {
        if tool_choice != ToolChoice::None {
            return Err(refuse(
                "tools",
                "no_output_parser",
                format!(
                    "the model `{}` has no output parser, so it cannot call tools",
                    model.name
                ),
            ));
        }
        return Ok(None);
    };
    let setup = ParserSetup {
        tools: tools_without_annotations(
            template_json::tools(request.tools()).map_err(not_written)?,
        ),
        tool_choice,
        parallel: request.fields().parallel_tool_calls.unwrap_or(true),
        opens_reasoning,
    };
    Ok(Some((Arc::clone(parser), setup)))
}

async fn encode(
    model: PromptModel<'_>,
    tenant: &Arc<str>,
    fields: &RequestFields,
    rendered: Option<&RenderedPrompt>,
) -> Result<Vec<u32>, ServiceError> {
    let source = match (&fields.prompt, rendered) {
        (Prompt::Tokens(ids), _) => return Ok(ids.clone()),
        (Prompt::Text(text), _) => Source::Text(text.clone()),
        (Prompt::Chat(_), rendered) => {
            Source::Segments(rendered.map(|r| r.segments.clone()).unwrap_or_default())
        }
    };
    let param = match &source {
        Source::Text(_) => "prompt",
        Source::Segments(_) => "messages",
    };
    let tokenizer = Arc::clone(model.tokenizer);
    let context = model.context;
    let requested = fields.least_room();
    // What is cut off afterwards counts for nothing.
    let most = match fields.truncate_prompt {
        None => context,
        Some(_) => usize::MAX,
    };
    let encoded = encoding::encode(tenant, source.bytes(), most, move |limits| {
        source.encode(&tokenizer, limits)
    });
    encoded.await?.map_err(|error| match error {
        TokenizerError::TooLong { at_least } => ServiceError::ContextLength {
            param,
            prompt: at_least,
            at_least: true,
            requested,
            context,
        },
        TokenizerError::ControlToken { .. } => refuse(param, "control_token", error.to_string()),
        error => ServiceError::Engine(error.to_string()),
    })
}

/// Keep as much of the end of a prompt as the caller says.
fn truncate(model: PromptModel<'_>, fields: &RequestFields, mut ids: Vec<u32>) -> Vec<u32> {
    let kept = match fields.truncate_prompt {
        None => return ids,
        Some(Truncation::Last(tokens)) => tokens as usize,
        Some(Truncation::Context) => {
            let context = model.context;
            context.saturating_sub(fields.least_room())
        }
    };
    ids.drain(..ids.len().saturating_sub(kept.max(1)));
    ids
}

enum Source {
    Text(String),
    Segments(Vec<Segment>),
}

impl Source {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Segments(segments) => segments
                .iter()
                .map(|(Segment::Special(text) | Segment::Plain(text))| text.len())
                .sum(),
        }
    }

    fn encode(
        &self,
        tokenizer: &Tokenizer,
        limits: EncodeLimits<'_>,
    ) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Text(text) => tokenizer.encode_text_within(text, limits),
            Self::Segments(segments) => {
                tokenizer.encode_segments_within(&for_tokenizer(segments), limits)
            }
        }
    }
}

/// Most tokens of each choice. What the caller asks for must fit the context, unless it may be cut; defaults and the
/// policy's limit, which all choices share, are cut to fit.
pub(crate) fn max_tokens(
    model: &TokenModel,
    request: &Request,
    prompt: usize,
    allowed: Option<u32>,
    default: u32,
) -> Result<u32, ServiceError> {
    let context = model.generator.runtime.context_length();
    let asked = request.fields().max_tokens;
    let requested = request.fields().least_room();
    if prompt.saturating_add(requested) > context {
        return Err(ServiceError::ContextLength {
            param: prompt_param(request.fields()),
            prompt,
            at_least: false,
            requested,
            context,
        });
    }
    let room = u32::try_from(context - prompt).unwrap_or(u32::MAX);
    let wanted = asked
        .or(model.generator.generation.max_tokens)
        .unwrap_or(default)
        .min(room);
    let share = allowed.map_or(u32::MAX, |all| (all / request.candidates().0).max(1));
    Ok(wanted.min(share))
}

/// Tokens that end an answer.
pub(crate) fn stop_tokens(model: &TokenModel, fields: &RequestFields) -> Vec<u32> {
    let own = &model.generator.generation.eos_tokens;
    let own = own.iter().filter(|_| !fields.ignore_end);
    own.chain(&fields.stop_tokens).copied().collect()
}

/// Each word as tokens: at the start of a text, and behind a blank, where that makes a difference.
fn bad_words(model: &TokenModel, words: &[String]) -> Result<Vec<Vec<u32>>, ServiceError> {
    let mut all = Vec::with_capacity(2 * words.len());
    for (index, word) in words.iter().enumerate() {
        for text in [word.clone(), format!(" {}", word.trim_start())] {
            let ids = model.generator.tokenizer.encode_plain(&text);
            let ids = ids.map_err(|error| {
                let message = format!("the word cannot be encoded: {error}");
                invalid(format!("bad_words[{index}]"), message)
            })?;
            if !all.contains(&ids) {
                all.push(ids);
            }
        }
    }
    Ok(all)
}

/// Sampling parameters of choice `index`.
///
/// # Errors
/// When a forbidden word cannot be encoded.
pub(crate) fn sampling(
    model: &TokenModel,
    fields: &RequestFields,
    index: u32,
) -> Result<SamplingParams, ServiceError> {
    let defaults = &model.generator.generation;
    let or =
        |asked: Option<f64>, model: Option<f64>, off: f64| asked.or(model).unwrap_or(off) as f32;
    Ok(SamplingParams {
        temperature: or(fields.temperature, defaults.temperature, 1.0),
        top_p: or(fields.top_p, defaults.top_p, 1.0),
        top_k: fields.top_k.or(defaults.top_k).unwrap_or(0),
        min_p: or(fields.min_p, defaults.min_p, 0.0),
        // Each choice has a stream of its own, or all would be the same.
        seed: fields
            .seed
            .map(|seed| (seed as u64).wrapping_add(u64::from(index))),
        repetition_penalty: or(fields.repetition_penalty, defaults.repetition_penalty, 1.0),
        frequency_penalty: or(fields.frequency_penalty, None, 0.0),
        presence_penalty: or(fields.presence_penalty, None, 0.0),
        logit_bias: fields
            .logit_bias
            .iter()
            .map(|&(id, bias)| (id, bias as f32))
            .collect(),
        min_tokens: fields.min_tokens,
        held_back: match fields.min_tokens {
            0 => Vec::new(),
            _ => stop_tokens(model, fields),
        },
        bad_words: bad_words(model, &fields.bad_words)?,
    })
}

/// Log-probabilities to ask of the engine: those that the caller wants, and those by which the
/// best choices are found.
pub(crate) fn logprobs(request: &Request) -> Option<LogprobParams> {
    let ranked = request.candidates().0 > request.choices();
    let top = request.fields().logprobs.or(ranked.then_some(0))?;
    let top = u8::try_from(top).unwrap_or(u8::MAX);
    Some(LogprobParams { top })
}

/// The field that holds the prompt.
pub(crate) fn prompt_param(fields: &RequestFields) -> &'static str {
    match fields.prompt {
        Prompt::Chat(_) => "messages",
        Prompt::Text(_) | Prompt::Tokens(_) => "prompt",
    }
}

/// Error of a sequence that the runtime rejected, of at most `requested` new tokens. If the queue is
/// full, the caller is advised to retry after `retry_after` seconds.
pub(crate) fn rejected(
    error: SubmitError,
    fields: &RequestFields,
    requested: u32,
    retry_after: u32,
) -> ServiceError {
    match error {
        SubmitError::Invalid(message) => ServiceError::Invalid {
            param: None,
            code: "invalid_request",
            message,
        },
        SubmitError::ContextLength { prompt, context } => ServiceError::ContextLength {
            param: prompt_param(fields),
            prompt,
            at_least: false,
            requested: requested as usize,
            context,
        },
        SubmitError::QueueFull { limit } => ServiceError::QueueFull {
            limit,
            unit: "requests",
            retry_after,
        },
        SubmitError::QueuedTokens { limit } => ServiceError::QueueFull {
            limit,
            unit: "prompt tokens",
            retry_after,
        },
        SubmitError::TenantQueue { waiting } => ServiceError::TenantQueueFull {
            waiting,
            retry_after,
        },
        SubmitError::ExpectedWait { wait } => ServiceError::Overloaded {
            seconds: wait.as_secs().saturating_add(1),
        },
        SubmitError::Broken { retry_after } => ServiceError::Unavailable {
            message: "the model's engine has failed again and again, or is stuck, and takes no requests at present; \
                      retry later, or use another model"
                .to_owned(),
            retry_after: u32::try_from(retry_after.as_secs())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        },
        SubmitError::Stopped => ServiceError::Stopping,
    }
}
