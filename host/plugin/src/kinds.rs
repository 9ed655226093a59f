//! Requests to plugins and their answers, in the host's own types. The bindings of each WIT
//! version convert to and from these, so that nothing above knows versions.
//!
//! The fields are those of `wit/v0.3`; see there.

use std::sync::Arc;

/// Facts about the model that an instance serves (`interface model`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelDescription {
    /// Public name.
    pub name: String,
    /// Architecture: `model_type` or the GGUF architecture.
    pub architecture: String,
    /// Jinja source.
    pub chat_template: Option<String>,
    /// JSON text of the description of answers that the model's files have.
    pub response_template: Option<String>,
    /// Text of the beginning-of-sequence token, or empty.
    pub bos_token: String,
    /// Text of the end-of-sequence token, or empty.
    pub eos_token: String,
    /// Every control token.
    pub control_tokens: Vec<ControlToken>,
}

/// A token outside the ordinary vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlToken {
    /// Token id.
    pub id: u32,
    /// Its text.
    pub text: String,
    /// Flag of a special token, which is left out of generated text.
    pub special: bool,
}

/// All tokens of a model (`interface vocabulary`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    /// Bytes of all tokens, back to back.
    pub bytes: Vec<u8>,
    /// Offset of each token in `bytes`, and the end of the last.
    pub offsets: Vec<u32>,
    /// Tokens that end a sequence.
    pub eos: Vec<u32>,
    /// Control tokens, rising.
    pub control: Vec<u32>,
    /// SHA-256 in hexadecimal.
    pub digest: String,
}

impl Vocabulary {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Words in a mask: one bit for each token.
    pub fn mask_words(&self) -> usize {
        self.len().div_ceil(32)
    }
}

/// Grammar that generated text must follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GrammarSource {
    /// Any JSON object.
    JsonObject,
    /// A JSON Schema document.
    JsonSchema(String),
    /// A regular expression.
    Regex(String),
    /// A Lark grammar.
    Lark(String),
}

/// A conversation to render (`chat-template.input`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateInput {
    /// JSON array of messages.
    pub messages: String,
    /// JSON array of tool declarations.
    pub tools: Option<String>,
    /// JSON object of further template arguments.
    pub arguments: Option<String>,
    /// End with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// Date of today, as `YYYY-MM-DD`.
    pub today: String,
}

/// A rendered prompt (`chat-template.output`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// Pieces of the prompt.
    pub segments: Vec<Segment>,
    /// Further stop strings.
    pub stop: Vec<String>,
    /// The prompt ends inside a reasoning block.
    pub opens_reasoning: bool,
    /// Component that rendered the prompt, where one did.
    pub by: Option<NameAndVersion>,
}

/// Name and version of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAndVersion {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Control tokens are recognised.
    Special(String),
    /// Control tokens are not recognised.
    Plain(String),
}

/// Choice of the tools that may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// No tool may be called.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one tool must be called.
    Required,
    /// The tool of this name must be called.
    Named(String),
}

/// Setup of a parser before the first token (`output-parser.setup`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParserSetup {
    /// JSON array of tool declarations.
    pub tools: String,
    /// Choice among the tools.
    pub tool_choice: ToolChoice,
    /// Several calls are allowed.
    pub parallel: bool,
    /// The prompt ended inside a reasoning block.
    pub opens_reasoning: bool,
}

/// Traits of a parser (`output-parser.traits` and `reasoning.describe`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParserTraits {
    /// Generated text must include special tokens.
    pub keep_special_tokens: bool,
    /// Texts around reasoning, of parsers that tell them.
    pub reasoning: Option<Arc<ReasoningMarks>>,
}

/// Texts around a block of reasoning (`reasoning.marks`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// The text that opens a block; empty if only prompts do.
    pub open: String,
    /// The text that closes it; not empty.
    pub close: String,
}

/// Parsed part of the generated text (`output-parser.event`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParserEvent {
    /// Text for the user.
    Content(String),
    /// Text of the reasoning block.
    Reasoning(String),
    /// A tool call begins.
    CallBegin {
        /// Index of the call, from 0.
        index: u32,
        /// The model's id for it.
        id: Option<String>,
        /// Name of the tool.
        name: String,
    },
    /// More arguments.
    CallArguments {
        /// Index of the call.
        index: u32,
        /// JSON text to append.
        delta: String,
    },
    /// The call is complete.
    CallEnd {
        /// Index of the call.
        index: u32,
    },
}

/// Finish reason of an answer, as told to plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or string.
    Stop,
    /// A limit.
    Length,
    /// The client went away.
    Cancelled,
    /// A failure.
    Error,
}

/// State of a matcher (`grammar.status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchStatus {
    /// More text is needed.
    Active,
    /// The text may end here.
    Accepting,
    /// The text must end here.
    Finished,
}

/// The outcome of an advance (`grammar.step`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchStep {
    /// State of the matcher.
    pub status: MatchStatus,
    /// Tokens that must follow.
    pub forced: Vec<u32>,
}

/// A request as a policy sees it (`policy.facts`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The server's id of the request.
    pub request_id: String,
    /// Route pattern.
    pub route: String,
    /// HTTP method.
    pub method: String,
    /// IP address of the peer.
    pub peer: String,
    /// Granted headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The model asked for.
    pub model: Option<String>,
    /// The answer is streamed.
    pub streaming: bool,
    /// Limit on generated tokens over all choices.
    pub max_tokens: Option<u32>,
    /// Names of the functions that the caller declares.
    pub tools: Vec<String>,
    /// Names of the server's tools that the request opts in to.
    pub server_tools: Vec<String>,
}

/// Grant of tools to a request (`policy.tool-grant`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolGrant {
    /// All tools that the request asks for.
    #[default]
    All,
    /// No tools but these.
    Only(Vec<String>),
    /// All tools but these.
    AllBut(Vec<String>),
}

impl ToolGrant {
    /// Whether a tool of this name is granted.
    pub fn permits(&self, name: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|known| known == name);
        match self {
            Self::All => true,
            Self::Only(names) => among(names),
            Self::AllBut(names) => !among(names),
        }
    }

    /// Intersection of two grants.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, grant) | (grant, Self::All) => grant,
            (Self::Only(names), grant) | (grant, Self::Only(names)) => {
                let both = names.into_iter().filter(|name| grant.permits(name));
                Self::Only(both.collect())
            }
            (Self::AllBut(mut names), Self::AllBut(others)) => {
                names.extend(others);
                Self::AllBut(names)
            }
        }
    }

    /// Names that the grant lists.
    pub fn names(&self) -> &[String] {
        match self {
            Self::All => &[],
            Self::Only(names) | Self::AllBut(names) => names,
        }
    }
}

/// Identity of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    /// Stable id of the caller.
    pub subject: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Further labels for the access log.
    pub labels: Vec<(String, String)>,
}

/// Decision of a policy (`policy.decision`).
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The request may go on.
    Allow(Allowance),
    /// The request ends here.
    Deny(Denial),
    /// Ask the next policy.
    Abstain,
}

/// `policy.allow`
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allowance {
    /// Identity of the caller.
    pub principal: Principal,
    /// Priority; a higher one is served first.
    pub priority: i32,
    /// A tighter limit on generated tokens.
    pub max_tokens: Option<u32>,
    /// Functions that the caller may declare.
    pub tools: ToolGrant,
    /// Tools of the server that the request may opt in to.
    pub server_tools: ToolGrant,
    /// Response headers to add.
    pub headers: Vec<(String, String)>,
    /// Lease of the policy, handed back in `account`.
    pub lease: Option<String>,
    /// Changes of the request, all of which the binding is granted.
    pub rewrites: Vec<Rewrite>,
}

/// Change of a request (`policy.rewrite`).
#[derive(Debug, Clone, PartialEq)]
pub enum Rewrite {
    /// A system prompt.
    System {
        /// Its text.
        text: String,
        /// Place of the system prompt.
        place: SystemPlace,
    },
    /// Limit on generated tokens of each choice where the request sets none.
    MaxTokens(u32),
    /// Model that answers instead.
    Model(String),
    /// Sampling temperature where the request sets none.
    Temperature(f32),
}

impl Rewrite {
    /// Names of all rewrites, as a binding grants them.
    pub const NAMES: [&'static str; 4] = ["system", "max_tokens", "model", "temperature"];

    /// Name by which a binding grants the rewrite: one of [`Rewrite::NAMES`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::System { .. } => "system",
            Self::MaxTokens(_) => "max_tokens",
            Self::Model(_) => "model",
            Self::Temperature(_) => "temperature",
        }
    }
}

/// Place of a system prompt (`policy.system-place`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemPlace {
    /// Insert before a conversation that has no system message.
    IfAbsent,
    /// Insert before the conversation.
    Before,
    /// Replace the system messages at the beginning.
    Instead,
}

/// `policy.deny`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status, 400 to 499.
    pub status: u16,
    /// `error.type`
    pub kind: String,
    /// `error.code`
    pub code: String,
    /// `error.message`
    pub message: String,
    /// Time after which to retry; becomes `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Response headers to add.
    pub headers: Vec<(String, String)>,
}

/// Usage of a request that has ended (`policy.usage`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The server's id of the request.
    pub request_id: String,
    /// Lease, from the allowance.
    pub lease: Option<String>,
    /// Subject, from the allowance.
    pub subject: String,
    /// Tenant, from the allowance.
    pub tenant: Option<String>,
    /// The model that answered.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens generated over all choices.
    pub completion_tokens: u32,
    /// Finish reason of the first choice.
    pub finish: Finish,
    /// Time from arrival to the last byte.
    pub wall_ms: u64,
}

/// A tool, as a model is told of it (`tool.declaration`).
#[derive(Debug, Clone, PartialEq)]
pub struct ServerTool {
    /// Name of the tool: 1 to 64 ASCII letters, digits, `_` or `-`.
    pub name: String,
    /// Description for the model: purpose, and when to use it.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: serde_json::Value,
}

/// Context of a tool call (`tool.context`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCaller {
    /// The id of the call within the request.
    pub call_id: String,
    /// The model that calls.
    pub model: String,
    /// Identity of the caller.
    pub subject: String,
    /// Account of the caller.
    pub tenant: Option<String>,
}

/// Answer of a tool. Both are told to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolAnswer {
    /// The result.
    Result(String),
    /// Reason for which there is no result; the model may try otherwise.
    Refused(String),
}

/// Parts that a guardrail looks at (`guardrail.traits`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardTraits {
    /// Conversations and prompts.
    pub input: bool,
    /// Text for the user.
    pub content: bool,
    /// Text of the reasoning block.
    pub reasoning: bool,
    /// Arguments of tool calls.
    pub call_arguments: bool,
}

/// Context of a text that a guardrail looks at (`guardrail.context`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardContext {
    /// The model that answers.
    pub model: String,
    /// Identity of the caller.
    pub subject: String,
    /// Account of the caller.
    pub tenant: Option<String>,
    /// Flag: text is held back until the verdict.
    pub holds: bool,
}

/// Part of a choice (`guardrail.part`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPart {
    /// Text for the user.
    Content,
    /// Text of the reasoning block.
    Reasoning,
    /// Arguments of a tool call.
    CallArguments {
        /// Index of the call.
        index: u32,
        /// Name of the tool.
        name: String,
    },
}

/// Verdict of a guardrail (`guardrail.verdict`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardVerdict {
    /// All of the text may go out.
    Pass,
    /// More text is needed for a verdict.
    Undecided,
    /// The text goes out in place of the text of the part that is held.
    Replace(String),
    /// The choice ends here.
    Refuse(Refusal),
}

/// Reason of a guardrail (`guardrail.refusal`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Code for logs and metrics.
    pub code: String,
    /// Text for the caller.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_of_tools_narrow_one_another() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let grants = [
            ToolGrant::All,
            ToolGrant::Only(names(&["a", "b"])),
            ToolGrant::Only(names(&[])),
            ToolGrant::AllBut(names(&["b", "c"])),
            ToolGrant::AllBut(names(&["a"])),
        ];
        for one in &grants {
            for other in &grants {
                let both = one.clone().and(other.clone());
                for name in ["a", "b", "c", "d"] {
                    let expected = one.permits(name) && other.permits(name);
                    assert_eq!(both.permits(name), expected, "{one:?}, {other:?}: {name}");
                }
            }
        }
    }
}
