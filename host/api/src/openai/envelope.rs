//! Fields around the choices of an answer, the same in a whole answer and in chunks.

use mortise_service::Usage;
use serde::Serialize;

use super::thoughts::Thoughts;

/// Identity of an answer, repeated in every chunk of it.
#[derive(Debug, Clone)]
pub(crate) struct AnswerIdentity {
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
}

/// Fingerprint of the system. It changes with whatever may change seeded answers.
pub(crate) const FINGERPRINT: &str = concat!("mortise-", env!("CARGO_PKG_VERSION"));

/// Options of the caller for the shape of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerShape {
    /// A last chunk reports usage.
    pub(crate) include_usage: bool,
    /// Every chunk reports usage so far.
    pub(crate) usage_throughout: bool,
    /// Chunks are padded, so that their sizes do not tell the lengths of tokens.
    pub(crate) obfuscate: bool,
    /// Choices carry log-probabilities.
    pub(crate) logprobs: bool,
    /// The answer has log-probabilities of the prompt, with so many tokens beside each.
    pub(crate) prompt_logprobs: Option<u32>,
    /// The prompt that choices repeat has log-probabilities, with so many tokens beside each.
    pub(crate) echo_logprobs: Option<u32>,
    /// The answer has the ids of its tokens.
    pub(crate) token_ids: bool,
    /// Place of reasoning.
    pub(crate) thoughts: Thoughts,
    /// The caller used `functions`, so calls are written as `function_call`.
    pub(crate) legacy_functions: bool,
}

/// OpenAI's usage object.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct UsageBody {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct CompletionDetails {
    reasoning_tokens: u32,
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached_tokens,
            },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
        }
    }
}
