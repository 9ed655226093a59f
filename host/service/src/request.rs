//! Fields of a request, in the service's own types. Every dialect translates to [`RequestFields`];
//! only [`crate::Request::check`] makes a [`crate::Request`], so its holders rely on its bounds.

use mortise_engine::EarlyStopping;
use mortise_plugin::{GrammarSource, ToolChoice};

use mortise_models::conversation::{Conversation, TemplateArguments, ToolDeclarations};

use crate::gbnf;
use crate::limits::MAX_GRAMMAR_BYTES;
use crate::own_tools::OwnTools;
use crate::structural_tag::{TagError, structural_tag};

/// Fields of a request before their bounds are checked. `None` means the caller did not say.
#[derive(Debug, Clone, Default)]
pub struct RequestFields {
    /// The model's name as the caller wrote it.
    pub model: String,
    /// Adapter of the model that is applied; the name of the model may have it too, behind a colon.
    pub lora_adapter: Option<String>,
    /// Conversation to answer, or text to continue.
    pub prompt: Prompt,
    /// Number of choices.
    pub n: Option<u32>,
    /// Generate this many, at least `n`, and give those with the highest mean log-probability of
    /// their tokens.
    pub best_of: Option<u32>,
    /// Search with beams instead of sampling.
    pub beams: Option<BeamFields>,
    /// Most tokens to generate for each choice; 0 only with `prompt_logprobs`.
    pub max_tokens: Option<u32>,
    /// `max_tokens` may be more than the context has room for behind the prompt, and is cut to that.
    pub max_tokens_fit: bool,
    /// Sampling temperature, 0 to 2.
    pub temperature: Option<f64>,
    /// Cumulative probability of the candidates (top-p), above 0, up to 1.
    pub top_p: Option<f64>,
    /// Number of candidates (top-k); 0 is off.
    pub top_k: Option<u32>,
    /// Least probability of a candidate relative to the most likely one (min-p), 0 to 1.
    pub min_p: Option<f64>,
    /// Seed of the random numbers, any integer.
    pub seed: Option<i64>,
    /// Repetition penalty, above 0, up to 4.
    pub repetition_penalty: Option<f64>,
    /// Frequency penalty, -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Presence penalty, -2 to 2.
    pub presence_penalty: Option<f64>,
    /// Token id to bias, -100 to 100.
    pub logit_bias: Vec<(u32, f64)>,
    /// Stop strings: up to 16, of 1 to 1024 bytes each, 4096 bytes in all.
    pub stop: Vec<String>,
    /// A stop string that ends the answer is part of it.
    pub include_stop: bool,
    /// Control tokens that the model generates are part of the text.
    pub keep_special: bool,
    /// Tokens that end the answer, beside those of the model, at most 64.
    pub stop_tokens: Vec<u32>,
    /// The model's end tokens do not end the answer.
    pub ignore_end: bool,
    /// Tokens before the answer may end; at most `max_tokens`, if the caller gives that.
    pub min_tokens: u32,
    /// Words that the answer must not have, each with and without a blank before it; at most 64, of at
    /// most 256 bytes each.
    pub bad_words: Vec<String>,
    /// Tokens of the prompt that are kept, counted from its end; none keeps all.
    pub truncate_prompt: Option<Truncation>,
    /// Steps of priority that the caller waives, so that others go first.
    pub waived_priority: u32,
    /// Steps of priority that a label of `metadata` waives. The label counts where `waived_priority` is not given, and
    /// is passed over where a model has no priorities.
    pub labelled_priority: u32,
    /// Labels of the caller's own, an object as JSON, which policies are told of.
    pub metadata: Option<String>,
    /// Report log-probabilities with this many alternatives, at most 20.
    pub logprobs: Option<u32>,
    /// Report log-probabilities of the prompt's own tokens; not with beams or tools of the server.
    pub prompt_logprobs: Option<PromptScoring>,
    /// Report the ids of all tokens, of the prompt and generated; not with tools of the server.
    pub return_tokens: bool,
    /// Tools that the caller declares and runs.
    pub tools: ToolDeclarations,
    /// Names of tools that the server may run itself, beside the caller's own.
    pub server_tools: Vec<String>,
    /// Tools that the server runs for this request alone.
    pub own_tools: OwnTools,
    /// Calls of the server's tools at most, up to what the server is configured for.
    pub max_server_tool_calls: Option<u32>,
    /// Tool choice; the model decides if absent.
    pub tool_choice: Option<ToolChoice>,
    /// Flag: one answer may hold several tool calls; true if absent.
    pub parallel_tool_calls: Option<bool>,
    /// Constraint on the content.
    pub constraint: Option<ContentConstraint>,
    /// Bound on the tokens of a block of reasoning.
    pub reasoning_budget: Option<ReasoningBudget>,
    /// Requests with one key share what their tenant gets with those of other keys, in equal parts.
    /// 1 to 128 characters that are not all blank; blanks around it do not count.
    pub fairness_key: Option<String>,
    /// The conversation may be sent to another server.
    pub allow_remote: bool,
    /// The caller reads the answer as it is made.
    pub stream: bool,
}

impl RequestFields {
    /// True if the server runs tools for the request.
    pub(crate) fn runs_tools(&self) -> bool {
        !self.server_tools.is_empty() || !self.own_tools.is_empty()
    }

    /// True if the server runs a tool of this name for the request.
    pub(crate) fn runs_tool(&self, name: &str) -> bool {
        self.server_tools.iter().any(|tool| tool == name) || self.own_tools.contains(name)
    }

    /// Tokens that the context must have room for behind the prompt.
    pub(crate) fn least_room(&self) -> usize {
        match self.max_tokens_fit {
            true => 1,
            false => self.max_tokens.unwrap_or(1) as usize,
        }
    }
}

/// Tokens that are kept of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// Last tokens of the prompt, at least 1.
    Last(u32),
    /// Last tokens of the prompt, as many as the context has room for beside the answer.
    Context,
}

/// Reported log-probabilities of the prompt's own tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptScoring {
    /// Field of the request that asks for them, as the caller named it. Errors name it.
    pub field: &'static str,
    /// Likeliest tokens beside each, at most 20.
    pub top: u32,
}

/// A beam search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamFields {
    /// Beams, 1 to 16; at least `n`, which are given.
    pub size: u32,
    /// Length penalty, -10 to 10; above 0 favours long answers.
    pub length_penalty: f64,
    /// Condition on which the beam search stops.
    pub early_stopping: EarlyStopping,
}

/// A bound on the tokens of a block of reasoning, which is closed when they are used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningBudget {
    /// Field of the request, as the caller named it. Errors name it.
    pub field: &'static str,
    /// Tokens between the marks.
    pub tokens: u32,
    /// Flag: a model that cannot be held to the budget is refused. Otherwise the budget is a wish there.
    pub required: bool,
}

/// A grammar that the content of an answer must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentConstraint {
    /// Field of the request that holds the grammar, as the caller named it. Errors name it.
    pub field: String,
    /// The grammar.
    pub source: GrammarSource,
    /// The caller's own notation, of which `source` is a translation.
    pub written: Option<Written>,
}

/// A notation that is translated for the grammar component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// A grammar in GBNF.
    Gbnf(String),
    /// A structural tag, which is translated again once the model's control tokens are known.
    StructuralTag(serde_json::Map<String, serde_json::Value>),
}

impl ContentConstraint {
    /// A grammar that the caller wrote as it is.
    pub fn new(field: impl Into<String>, source: GrammarSource) -> Self {
        Self {
            field: field.into(),
            source,
            written: None,
        }
    }

    /// A grammar in Lark or in GBNF.
    ///
    /// # Errors
    /// With the reason for which it cannot be used.
    pub fn grammar(field: impl Into<String>, text: String) -> Result<Self, String> {
        if !gbnf::is_gbnf(&text) || text.len() > MAX_GRAMMAR_BYTES {
            return Ok(Self::new(field, GrammarSource::Lark(text)));
        }
        Ok(Self {
            field: field.into(),
            source: GrammarSource::Lark(gbnf::to_lark(&text)?),
            written: Some(Written::Gbnf(text)),
        })
    }

    /// A structural tag.
    ///
    /// # Errors
    /// For what is malformed, or cannot be written as a grammar.
    pub fn structural_tag(
        field: impl Into<String>,
        tag: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, TagError> {
        Ok(Self {
            field: field.into(),
            source: GrammarSource::Lark(structural_tag(&tag, &[])?),
            written: Some(Written::StructuralTag(tag)),
        })
    }
}

/// Conversation to answer, or text to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, rendered by the model's chat template.
    Chat(ChatPrompt),
    /// Text to continue as it stands, in which control tokens are not recognised.
    Text(String),
    /// Token ids to continue.
    Tokens(Vec<u32>),
}

impl Default for Prompt {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// A conversation and how it is rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatPrompt {
    /// The messages.
    pub conversation: Conversation,
    /// Further template arguments.
    pub arguments: TemplateArguments,
    /// Chat template that the request chooses; without one, that of the model.
    pub template: Option<ChosenTemplate>,
    /// End of the prompt.
    pub end: PromptEnd,
}

/// Chat template that a request chooses by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenTemplate {
    /// Field of the request that names it.
    pub field: &'static str,
    /// The name.
    pub name: String,
}

impl ChosenTemplate {
    /// The template that a field names, if it is given.
    pub fn of(field: &'static str, name: Option<String>) -> Option<Self> {
        name.map(|name| Self { field, name })
    }
}

/// End of a rendered conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// The opening of an assistant turn, which the model fills.
    #[default]
    AssistantTurn,
    /// The last message, left open, which the model continues.
    OpenMessage,
    /// The last message, closed.
    ClosedMessage,
}
