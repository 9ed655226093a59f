//! Log-probabilities of a prompt's own tokens: their bound, what is asked of the engine, and what is reported.

use std::sync::Arc;

use mortise_engine::{LogprobParams, ScoredToken};
use mortise_tokenizer::{Detokenizer, TokenTable};

use crate::check::Request;
use crate::error::ServiceError;
use crate::event::{PromptScores, PromptToken};
use crate::limits::MAX_PROMPT_LOGPROBS;
use crate::refusal::invalid;
use crate::request::{PromptScoring, RequestFields};

/// Number of log-probabilities that are reported of prompts after one more, of so many tokens, where `before` are
/// reported already.
///
/// # Errors
/// When there are too many for one answer.
pub(crate) fn check(
    request: &Request,
    tokens: usize,
    before: usize,
) -> Result<usize, ServiceError> {
    let Some(PromptScoring { field, top }) = request.fields().prompt_logprobs else {
        return Ok(before);
    };
    // Each choice may repeat its prompt.
    let each = (top as usize + 1).saturating_mul(request.choices() as usize);
    let all = before.saturating_add(tokens.saturating_mul(each));
    if all <= MAX_PROMPT_LOGPROBS {
        return Ok(all);
    }
    let message = format!(
        "{all} log-probabilities of prompts are asked for, each token with {top} others for every choice; at most \
         {MAX_PROMPT_LOGPROBS} are reported"
    );
    Err(invalid(field, message))
}

/// Log-probabilities of the prompt to ask of the engine for the choice at `index`: all choices have one prompt, so
/// that the first tells of it. Without a token to generate, it is all that a sequence is computed for.
pub(crate) fn wanted(fields: &RequestFields, index: u32, max_tokens: u32) -> Option<LogprobParams> {
    let scoring = fields.prompt_logprobs?;
    let top = u8::try_from(scoring.top).unwrap_or(u8::MAX);
    (index == 0 || max_tokens == 0).then_some(LogprobParams { top })
}

/// Makes text of a prompt's tokens, one after another.
#[derive(Debug)]
pub(crate) struct PromptText {
    detokenizer: Detokenizer,
    /// Tokens to come.
    left: usize,
}

impl PromptText {
    /// The text of a prompt of so many tokens.
    pub(crate) fn new(table: Arc<TokenTable>, keep_special: bool, tokens: usize) -> Self {
        Self {
            detokenizer: Detokenizer::new(table, keep_special, true),
            left: tokens,
        }
    }

    /// The next token. The last one has all text that is left.
    pub(crate) fn push(&mut self, token: &ScoredToken) -> PromptToken {
        let shown = |id: u32| {
            let bytes = self.detokenizer.next_bytes(id);
            String::from_utf8_lossy(bytes).into_owned()
        };
        let scores = token.logprobs.as_ref().map(|scores| PromptScores {
            logprob: scores.own,
            rank: scores.rank,
            top: scores
                .top
                .iter()
                .map(|(id, logprob)| (*id, shown(*id), *logprob))
                .collect(),
        });
        let name = shown(token.id);
        let mut text = String::new();
        self.detokenizer.push(token.id, &mut text);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.detokenizer.finish(&mut text);
        }
        PromptToken {
            id: token.id,
            token: name,
            text,
            scores,
        }
    }
}
